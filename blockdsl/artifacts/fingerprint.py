"""Fingerprint of artifacts: what training with them depends on."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto

from blockdsl.backend.files import read_model
from blockdsl.backend.identity import identity_of, set_identity
from blockdsl.backend.writing import without
from blockdsl.errors import ModelFileError
from blockdsl.training import Parameters


def new_identity(
    models: Iterable[ModelProto],
    parameters: Parameters,
    weights: Mapping[str, np.ndarray],
    replaced: Path,
) -> str:
    """Return the identity of artifacts that are about to be written.

    Args:
        models: The training, evaluation and optimizer models.
        parameters: The trained and the frozen parameters.
        weights: The values of initializers and parameters that lie outside of these.
        replaced: The training model that is replaced, if there is one.
    """
    digest = hashlib.sha256()
    tensors: list[TensorProto] = [*parameters[0], *parameters[1]]
    for model in models:
        head = without(model, "graph")
        set_identity(head, "")
        digest.update(head.SerializeToString(deterministic=True))
        digest.update(without(model.graph, "initializer").SerializeToString(deterministic=True))
        tensors.extend(model.graph.initializer)
    for tensor in tensors:
        digest.update(f"{tensor.name} {list(tensor.dims)} {tensor.data_type} ".encode())
        digest.update(_checksum(tensor, weights).to_bytes(4, "little"))
    return f"{digest.hexdigest()[:16]}/{_generation(replaced)}"


def _checksum(tensor: TensorProto, weights: Mapping[str, np.ndarray]) -> int:
    """Return a checksum of the values; fast, for they may be gigabytes."""
    if tensor.name in weights:
        array = np.ascontiguousarray(weights[tensor.name])
        return zlib.crc32(array.reshape(-1).view(np.uint8).data)
    return zlib.crc32(tensor.raw_data or tensor.SerializeToString(deterministic=True))


def _generation(replaced: Path) -> int:
    """Return how often artifacts have been generated over older ones in a place."""
    try:
        old = identity_of(read_model(replaced, weights=False))
    except ModelFileError:  # none is there, or something else
        return 0
    return int(old.rpartition("/")[2]) + 1 if old else 0
