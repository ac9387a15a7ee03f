"""Weights in files beside their model, mapped into memory instead of read.

What is mapped costs memory only while it is looked at, and the operating system takes that back
when it needs it: a model of many gigabytes can be taken apart and written again in little memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePath

import numpy as np
from onnx import ModelProto, TensorProto
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_tensor

from blockdsl.backend.engine import Array
from blockdsl.backend.files import StrPath, read_model
from blockdsl.errors import ModelFileError
from blockdsl.graph.tensor import PACKED, np_dtype
from blockdsl.graph.walk import nodes_of, subgraphs

_READ_BELOW = 2**16  # bytes: these may be shapes and settings, which building looks into


def read_mapped(path: StrPath, what: str = "model") -> tuple[ModelProto, dict[str, Array]]:
    """Read a model; its large external weights stay where they are.

    Args:
        path: The file.
        what: What the model is to the caller, for the error message.

    Returns:
        The model, and by their names the initializers that lie outside it, mapped into memory.

    Raises:
        ModelFileError: The model or its weights cannot be read.
    """
    model, folder = read_model(path, what, weights=False), Path(path).absolute().parent
    mapped = {}
    for tensor, array in external_weights(model, folder):
        if array.nbytes < _READ_BELOW:
            _read(tensor, folder)
        else:
            mapped[tensor.name] = array
    read_inner(model, folder)
    return model, mapped


def read_inner(model: ModelProto, folder: Path) -> None:
    """Read the external tensors that are no initializers of the graph itself into the model.

    Raises:
        ModelFileError: A file cannot be read.
    """
    for tensor in _other_tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            _read(tensor, folder)


def external_weights(model: ModelProto, folder: Path) -> Iterator[tuple[TensorProto, Array]]:
    """The initializers of a model that lie in other files, mapped into memory.

    Those of types whose elements are packed into bytes are read into the model instead.

    Raises:
        ModelFileError: A file is missing, too short or outside the folder.
    """
    for tensor in model.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        if tensor.data_type in PACKED:
            _read(tensor, folder)
            continue
        dtype, shape = np_dtype(tensor.data_type), tuple(tensor.dims)
        if 0 in shape:
            yield tensor, np.empty(shape, dtype)
            continue
        info = ExternalDataInfo(tensor)
        file = folder / info.location
        if ".." in PurePath(info.location).parts or os.path.isabs(info.location):
            raise _unreadable(tensor, file, "it is not in the folder of the model")
        try:
            yield tensor, np.memmap(file, dtype, "r", info.offset or 0, shape)
        except (OSError, ValueError) as error:
            raise _unreadable(tensor, file, error) from error


def _read(tensor: TensorProto, folder: Path) -> None:
    try:
        load_external_data_for_tensor(tensor, os.fspath(folder))
    except Exception as error:  # OSError, ValueError, and classes of onnx's C++ part
        file = folder / ExternalDataInfo(tensor).location
        raise _unreadable(tensor, file, error) from error
    tensor.data_location = TensorProto.DEFAULT  # which not every onnx does itself
    del tensor.external_data[:]


def _unreadable(tensor: TensorProto, file: Path, why: object) -> ModelFileError:
    return ModelFileError(
        f"The weight '{tensor.name}' lies in '{file}', a file beside the model, which cannot be "
        f"read: {why}"
    )


def _other_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """The tensors that are no initializers of the graph itself."""
    for node in nodes_of(model):
        for attribute in node.attribute:
            yield attribute.t
            yield from attribute.tensors
        for graph in subgraphs(node):
            yield from graph.initializer
