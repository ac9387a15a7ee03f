"""Checkpoints of parameters, and parameters of checkpoints."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from blockdsl.backend import checkpoint as codec
from blockdsl.backend.files import StrPath
from blockdsl.errors import CheckpointError
from blockdsl.graph.tensor import TensorType, elem_type_of
from blockdsl.training import Parameters


def save_checkpoint(
    parameters: Parameters, path_to_checkpoint: StrPath, nominal_checkpoint: bool = False
) -> None:
    """Write the parameters of a training block to a checkpoint.

    Args:
        parameters: The trained and the frozen parameters: `TrainingBlock.parameters()`.
        path_to_checkpoint: The file, replaced as a whole.
        nominal_checkpoint: Whether to leave the values out.

    Raises:
        CheckpointError: There are no parameters, or the file cannot be written.
    """
    if not isinstance(parameters, tuple | list) or len(parameters) != 2:
        raise CheckpointError(
            "No checkpoint parameters provided: pass what TrainingBlock.parameters() returns, the "
            "trained and the frozen ones."
        )
    write_checkpoint(parameters, path_to_checkpoint, nominal=nominal_checkpoint)


def write_checkpoint(
    parameters: Parameters,
    path: StrPath,
    *,
    nominal: bool = False,
    weights: Mapping[str, np.ndarray] = {},
    artifacts: str = "",
) -> None:
    """Write parameters to a checkpoint.

    Args:
        parameters: The trained and the frozen parameters.
        path: The file.
        nominal: Whether to leave the values out.
        weights: The values that are not in the tensors.
        artifacts: The identity of the artifacts that the checkpoint belongs to.
    """
    trained, frozen = (_arrays(tensors, weights) for tensors in parameters)
    codec.save(codec.Checkpoint(trained, frozen, nominal=nominal, artifacts=artifacts), path)


def load_checkpoint_to_model(path_to_checkpoint: StrPath, model: onnx.ModelProto) -> None:
    """Put the parameters of a checkpoint into a model, in place.

    Args:
        path_to_checkpoint: The file.
        model: A forward model whose initializers have the parameters' names.

    Raises:
        CheckpointError: The file cannot be read, is nominal, or an initializer is of another type.
    """
    if not isinstance(model, onnx.ModelProto):
        raise CheckpointError(f"The model is an onnx.ModelProto, not a {type(model).__name__}.")
    state = codec.load(path_to_checkpoint)
    if state.nominal:
        raise CheckpointError(
            f"{os.fspath(path_to_checkpoint)!r} is a nominal checkpoint: it holds no values."
        )
    values = {**state.trainable, **state.frozen}
    for tensor in model.graph.initializer:
        if tensor.name in values:
            value = values[tensor.name]
            there = TensorType(elem_type_of(value.dtype), value.shape)
            here = TensorType(tensor.data_type, tuple(tensor.dims))
            if there != here:
                raise CheckpointError(
                    f"The parameter {tensor.name!r} is {there} in the checkpoint and {here} in the "
                    f"model."
                )
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


def _arrays(
    tensors: list[onnx.TensorProto], weights: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    for tensor in tensors:
        if not isinstance(tensor, onnx.TensorProto):
            raise CheckpointError(
                f"A parameter is an onnx.TensorProto, not a {type(tensor).__name__}."
            )
    return {t.name: weights[t.name] if t.name in weights else _array(t) for t in tensors}


def _array(tensor: onnx.TensorProto) -> np.ndarray:
    try:
        return numpy_helper.to_array(tensor)
    except ValueError as error:
        raise CheckpointError(
            f"The parameter {tensor.name!r} is damaged: its values do not fill the shape "
            f"{tuple(tensor.dims)}."
        ) from error
