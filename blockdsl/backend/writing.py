"""Models are written tensor by tensor: no second copy of the weights is made.

A model file is one protobuf message, whose library would build it in memory as a whole. Its parts
are put together here instead: the graph's fields but its initializers, then these one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto

from blockdsl.backend.engine import Array
from blockdsl.backend.files import StrPath, replacing

# A protobuf file ends at 2 GiB; weights beyond this many bytes go to a file of their own.
_INLINE_LIMIT = 2**31 - 2**24
_ALIGNMENT = 4096  # of weights in a file of their own, so that they can be mapped into memory


def write(
    model: ModelProto,
    path: StrPath,
    weights: Mapping[str, Array] = {},
    *,
    whole: bool = False,
) -> None:
    """Write a model; weights too large for one protobuf go to `<path>.data`.

    Args:
        model: The model; it stays as it is.
        path: The file.
        weights: The values of the initializers that lie outside the model, by their names.
        whole: Whether old files stand until the new ones are complete.

    Raises:
        OSError: The file cannot be written.
    """
    place = replacing if whole else _in_place
    tensors = [_Tensor(tensor, weights.get(tensor.name)) for tensor in model.graph.initializer]
    if sum(tensor.size for tensor in tensors) > _INLINE_LIMIT:
        with place(f"{path}.data") as data, data.open("wb") as file:
            tensors = [tensor.moved_to(file, f"{Path(path).name}.data") for tensor in tensors]
    with place(path) as target, target.open("wb") as file:
        file.writelines(_chunks(model, tensors))


@contextmanager
def _in_place(path: StrPath) -> Iterator[Path]:
    yield Path(path)


class _Tensor:
    """An initializer: what the file says of it, and its bytes, if these are not in the former.

    Args:
        proto: The initializer.
        value: Its value, if it is not in there.
    """

    def __init__(self, proto: TensorProto, value: Array | None = None) -> None:
        self._proto = proto
        self.data: Any = b""
        self.size = proto.ByteSize()
        if value is not None:
            self._proto = _described(proto)
            self.data = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
            self.size = self._proto.ByteSize() + len(_field(TensorProto, "raw_data", self.data))
            self.size += len(self.data)

    def chunks(self) -> Iterator[Any]:
        """The bytes of the tensor's message."""
        yield self._proto.SerializeToString()
        if self.data:
            yield _field(TensorProto, "raw_data", self.data)
            yield self.data

    def moved_to(self, file: BinaryIO, location: str) -> _Tensor:
        """The tensor with its bytes written to a file of their own; itself if it is small."""
        data = self.data or self._proto.raw_data
        if len(data) < _ALIGNMENT:
            return self
        file.write(b"\0" * (-file.tell() % _ALIGNMENT))
        moved = _described(self._proto)
        moved.data_location = TensorProto.EXTERNAL
        entries = {"location": location, "offset": file.tell(), "length": len(data)}
        for key, value in entries.items():
            moved.external_data.add(key=key, value=str(value))
        file.write(data)
        return _Tensor(moved)


def _described(proto: TensorProto) -> TensorProto:
    """An initializer without its value."""
    described: TensorProto = without(proto, "raw_data", "data_location", "external_data")
    return described


def _chunks(model: ModelProto, tensors: list[_Tensor]) -> Iterator[Any]:
    """The bytes of the model's message, in pieces of at most one tensor."""
    graph = without(model.graph, "initializer").SerializeToString()
    heads = [_field(GraphProto, "initializer", tensor.size) for tensor in tensors]
    total = len(graph) + sum(map(len, heads)) + sum(tensor.size for tensor in tensors)
    yield without(model, "graph").SerializeToString()
    yield _field(ModelProto, "graph", total)
    yield graph
    for head, tensor in zip(heads, tensors, strict=True):
        yield head
        yield from tensor.chunks()


def without(message: Any, *left_out: str) -> Any:
    """Return a copy of a message that lacks some fields."""
    copy = type(message)()
    for field, value in message.ListFields():
        if field.name in left_out:
            continue
        if hasattr(value, "extend"):
            getattr(copy, field.name).extend(value)
        elif hasattr(value, "CopyFrom"):
            getattr(copy, field.name).CopyFrom(value)
        else:
            setattr(copy, field.name, value)
    return copy


def _field(message: Any, name: str, content: Any) -> bytes:
    """What stands before the bytes of a field: its number, and how many bytes there are."""
    size = content if isinstance(content, int) else len(content)
    return _varint(message.DESCRIPTOR.fields_by_name[name].number << 3 | 2) + _varint(size)


def _varint(number: int) -> bytes:
    """A number in protobuf's form: seven bits a byte, the lowest first."""
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])
