"""From the bytes of a checkpoint's files back to the checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from blockdsl.backend.checkpoint.flatbuffer import Bytes, FlatbufferError, Table, unpack
from blockdsl.backend.checkpoint.format import (
    DTYPES,
    SCHEMA,
    VERSION,
    Array,
    Checkpoint,
    OptimizerGroup,
)

ReadExternal = Callable[[int, int], Bytes]
"""Reads bytes of the external data file, given their offset and their number."""


class UnsupportedError(ValueError):
    """The checkpoint is sound, but it is of a version or of a type that cannot be read."""


def decode(buffer: Bytes, read_external: ReadExternal) -> Checkpoint:
    """Turn the bytes of a checkpoint file back into a checkpoint.

    Args:
        buffer: The whole file, writable: arrays of the result are views of it where their elements
            are aligned.
        read_external: Reads from the external data file; called where the file refers to it.

    Raises:
        FlatbufferError: The bytes are damaged.
        UnsupportedError: The version is another one, or a tensor is of an unknown type.
    """
    root = _root(buffer)
    module = root.get("module_state", {})
    nominal = module.get("is_nominal_state", False)

    def tensors(tables: Sequence[Table], nominal: bool = False) -> dict[str, Array]:
        arrays: dict[str, Array] = {}
        for table in tables:
            name = _name(table, "name", arrays)
            arrays[name] = _array(table, nominal, read_external)
        return arrays

    checkpoint = Checkpoint(
        trainable=tensors(module.get("requires_grad_params", ()), nominal),
        frozen=tensors(module.get("frozen_params", ()), nominal),
        nominal=nominal,
        artifacts=root.get("artifacts", ""),
    )
    for table in root.get("optimizer_groups", ()):
        group = OptimizerGroup(
            name=_name(table, "group_name", checkpoint.groups),
            step=table.get("step", 0),
            learning_rate=table.get("initial_learning_rate", 0.0),
        )
        checkpoint.groups[group.name] = group
        for state in table.get("optimizer_states", ()):
            parameter = _name(state, "param_name", group.slots)
            group.slots[parameter] = tensors(state.get("momentums", ()))
    bag = root.get("property_bag", {})
    for kind, default in (("ints", 0), ("floats", 0.0), ("strings", "")):
        for item in bag.get(kind, ()):
            name = _name(item, "name", checkpoint.properties)
            checkpoint.properties[name] = item.get("value", default)
    return checkpoint


def first_external(buffer: Bytes) -> int | None:
    """Where the first of the tensors in the external data file begins, `None` if there are none."""
    offsets = [tensor.get("external_data_offset", -1) for tensor in _tensors(_root(buffer))]
    return min((offset for offset in offsets if offset >= 0), default=None)


def _root(buffer: Bytes) -> Table:
    # Whatever else another version may have changed, this field is the first of the root table.
    version = unpack({"Root": {"version": "int32"}}, "Root", buffer).get("version", 0)
    if version != VERSION:
        raise UnsupportedError(
            f"it has version {version} of the format, and version {VERSION}, that of "
            "onnxruntime-training 1.19.2, is the one that can be read"
        )
    return unpack(SCHEMA, "Checkpoint", buffer)


def _tensors(root: Table) -> Iterator[Table]:
    module = root.get("module_state", {})
    yield from module.get("requires_grad_params", ())
    yield from module.get("frozen_params", ())
    states = chain.from_iterable(
        group.get("optimizer_states", ()) for group in root.get("optimizer_groups", ())
    )
    for state in states:
        yield from state.get("momentums", ())


def _name(table: Table, field: str, taken: Container[str]) -> str:
    name = table.get(field)
    if not isinstance(name, str):
        raise FlatbufferError(f"a {field} is missing")
    if name in taken:
        raise FlatbufferError(f"the {field} '{name}' occurs twice")
    return name


def _array(table: Table, nominal: bool, read_external: ReadExternal) -> Array:
    name, dims = table["name"], table.get("dims", ())
    dtype: np.dtype[Any] | None = DTYPES.get(table.get("data_type", 0))
    if dtype is None:
        raise UnsupportedError(
            f"'{name}' is of ONNX element type {table.get('data_type', 0)}, which is none of "
            f"{', '.join(known.name for known in DTYPES.values())}"
        )
    if nominal:
        return np.zeros((), dtype)  # 1.19.2 may leave a value there, but it means nothing
    if min(dims, default=0) < 0:
        raise FlatbufferError(f"'{name}' has the shape {list(dims)}")
    size = math.prod(dims) * dtype.itemsize
    offset = table.get("external_data_offset", -1)
    if "raw_data" not in table and offset < 0:
        raise FlatbufferError(f"'{name}' has no data")
    data = table["raw_data"] if "raw_data" in table else read_external(offset, size)
    if data.size != size:
        raise FlatbufferError(f"'{name}' of shape {list(dims)} has {data.size} bytes, not {size}")
    try:
        array = data.view(dtype).reshape(dims)
    except ValueError:  # more dimensions, or larger ones beside a zero, than NumPy can have
        raise FlatbufferError(f"'{name}' has the shape {list(dims)}") from None
    # 1.19.2 aligns to four bytes only; not every kernel can work on what is less aligned.
    return array if array.flags.aligned else array.copy()
