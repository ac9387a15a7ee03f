"""Forward models as they are read for artifacts."""

from __future__ import annotations

import copy
import os
from typing import Any

import numpy as np
import onnx

from blockdsl.backend.files import StrPath
from blockdsl.backend.weights import read_mapped
from blockdsl.errors import ArtifactError, ArtifactTypeError


def load_forward(
    model: Any,
) -> tuple[onnx.ModelProto, StrPath | None, dict[str, np.ndarray]]:
    """Return a model, its file, and the weights that stay in files beside that one.

    Args:
        model: An `onnx.ModelProto`, of which the result has a copy, or a path.

    Raises:
        ArtifactTypeError: It is neither.
        ArtifactError: It has no outputs, or weights outside of it that cannot be found.
    """
    if not isinstance(model, onnx.ModelProto | str | os.PathLike):
        raise ArtifactTypeError(
            f"Please pass in either a string or an ONNX ModelProto for the model, not "
            f"{type(model)}."
        )
    weights: dict[str, np.ndarray] = {}
    if isinstance(model, onnx.ModelProto):
        proto, path = copy.deepcopy(model), None
    else:
        (proto, weights), path = read_mapped(model), model
    if not proto.graph.output:
        raise ArtifactError("The model has no outputs: there is nothing that a loss could measure.")
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL and tensor.name not in weights:
            where = next((e.value for e in tensor.external_data if e.key == "location"), "")
            raise ArtifactError(
                f"The values of {tensor.name!r} lie outside the model, in {where!r}. Pass the path "
                f"of the model instead of the ModelProto, or load them: "
                f"onnx.external_data_helper.load_external_data_for_model(model, folder)."
            )
    return proto, path, weights
