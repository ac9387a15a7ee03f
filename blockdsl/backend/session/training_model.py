"""Reads training models, those of onnxruntime-training included, in plain ONNX.

The training models that onnxruntime-training generates hold operators that only its own wheel has:
`ConvGrad`, `LSTMTraining` and their like. In a stock runtime what they mean takes their place.
"""

from __future__ import annotations

import os

from onnx import ModelProto

from blockdsl.backend.files import StrPath
from blockdsl.backend.session.load import load_rewritable
from blockdsl.errors import EngineError, GradientError, GraphError
from blockdsl.graph.schema import MICROSOFT

TRAINING = "training model"

_OURS = frozenset({"InPlaceAccumulatorV2"})
"""What of `com.microsoft` models of blockdsl's own making hold."""


def load_training_model(path: StrPath) -> ModelProto:
    """Read a training model that a stock runtime can run, but for the accumulators.

    Raises:
        ModelFileError: The file is missing or no model.
        EngineError: The model is in the `.ort` format, or holds an operator of the training build
            that has no plain form.
    """
    model = load_rewritable(path, TRAINING)
    if not all(_is_ours(node.domain, node.op_type) for node in model.graph.node):
        # Imported here because blockdsl's own training models do without.
        from blockdsl.gradient.bodies import functions_for
        from blockdsl.gradient.training_ops import replace_training_operators

        try:
            model.functions.extend(functions_for(model))
            replace_training_operators(model)
        except (GradientError, GraphError) as error:
            raise EngineError(
                f"The session engine cannot run the {TRAINING} '{os.fspath(path)}': {error} The "
                "training engine may (engine='training', `pip install 'blockdsl[training]'`)."
            ) from error
    return model


def _is_ours(domain: str, op_type: str) -> bool:
    if domain == MICROSOFT:
        return op_type in _OURS
    return not op_type.endswith("Grad") and domain in ("", "ai.onnx")
