"""Flatbuffers from a table of the schema: the reader trusts nothing, the writer copies nothing.

The generated classes of the `flatbuffers` package do neither. Their accessors follow whatever
offset the file holds, so that a damaged file ends in a `struct.error` or in silent nonsense, and
their builder assembles the buffer back to front in memory, which copies every tensor three times.
Here the small structures (tables, names, shapes) come first, in one `bytearray`, and the byte
vectors follow, each written to the file straight from the array that holds it.

A schema maps the name of a table to its fields, in the order of their slots, and a field to its
kind: a scalar (`"bool"`, `"int32"`, `"int64"`, `"float"`), `"string"`, `"[int64]"`, `"[ubyte]"`,
the name of a table, or the one or the other in brackets for a vector. A table is a `dict` without
the fields that are absent. Byte vectors are NumPy arrays when read, memory views when written.

Example:
    >>> schema = {"Pair": {"name": "string", "data": "[ubyte]"}}
    >>> chunks = pack(schema, "Pair", b"DEMO", {"name": "x", "data": memoryview(b"ab")})
    >>> unpack(schema, "Pair", np.frombuffer(b"".join(chunks), np.uint8))
    {'name': 'x', 'data': array([97, 98], dtype=uint8)}
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Schema = Mapping[str, Mapping[str, str]]
Table = dict[str, Any]
Bytes = npt.NDArray[np.uint8]
Chunk = bytearray | memoryview

ALIGNMENT = 16  # of byte vectors in the buffer: enough for elements of every type
MAX_SIZE = 2**31 - 1  # readers take offsets for signed 32-bit numbers

_SCALARS = {
    "bool": struct.Struct("<?"),
    "int32": struct.Struct("<i"),
    "int64": struct.Struct("<q"),
    "float": struct.Struct("<f"),
}
_OFFSET = struct.Struct("<I")  # from where it stands to what it points to; also a vector's length
_VTABLE_OFFSET = struct.Struct("<i")  # from a table back to its vtable
_SLOT = struct.Struct("<H")
_ITEM_SIZES = {"string": 1, "[ubyte]": 1, "[int64]": 8}  # other vectors hold offsets
_MAX_TABLES = 1_000_000  # as flatbuffers' own verifier: shared offsets could expand without end


class FlatbufferError(ValueError):
    """The bytes are no flatbuffer of this schema, or the tables do not fit into one."""


def unpack(schema: Schema, root: str, buffer: Bytes) -> Table:
    """Read a flatbuffer; byte vectors are views of `buffer`, everything else is copied out.

    Args:
        schema: The tables that can occur.
        root: The name of the outermost table.
        buffer: The whole buffer.

    Returns:
        The outermost table.

    Raises:
        FlatbufferError: An offset, a length or a text is not what it can be.
    """
    reader = _Reader(schema, buffer)
    return reader.table(root, reader.follow(0))


def pack(schema: Schema, root: str, identifier: bytes, table: Table) -> list[Chunk]:
    """Write a flatbuffer, as chunks to be written one after the other.

    Args:
        schema: The tables that can occur.
        root: The name of the outermost table.
        identifier: The four characters that say what the buffer holds.
        table: The outermost table.

    Returns:
        The chunks; among them are the byte vectors of `table` themselves.

    Raises:
        FlatbufferError: The buffer would be larger than a flatbuffer can be.
    """
    writer = _Writer(schema, identifier)
    writer.table(root, table, 0)
    return writer.chunks()


class _Reader:
    def __init__(self, schema: Schema, buffer: Bytes) -> None:
        self.schema = schema
        self.buffer = buffer
        self.memory = buffer.data
        self.tables = 0

    def check(self, at: int, size: int) -> None:
        if at < 0 or at + size > len(self.memory):
            raise FlatbufferError(f"it points to byte {at + size} of {len(self.memory)}")

    def scalar(self, layout: struct.Struct, at: int) -> Any:
        self.check(at, layout.size)
        return layout.unpack_from(self.memory, at)[0]

    def follow(self, at: int) -> int:
        return at + int(self.scalar(_OFFSET, at))

    def table(self, name: str, at: int) -> Table:
        self.tables += 1
        if self.tables > _MAX_TABLES:
            raise FlatbufferError(f"it has more than {_MAX_TABLES} tables")
        vtable = at - int(self.scalar(_VTABLE_OFFSET, at))
        slots = (int(self.scalar(_SLOT, vtable)) - 4) // 2  # the vtable also holds two sizes
        size = int(self.scalar(_SLOT, vtable + 2))
        table: Table = {}
        # Slots that the schema does not know are a newer version's; those it knows may be missing.
        for slot, (field, kind) in enumerate(list(self.schema[name].items())[: max(slots, 0)]):
            offset = int(self.scalar(_SLOT, vtable + 4 + 2 * slot))
            if not offset:
                continue  # the field is absent
            if offset >= size:
                raise FlatbufferError(f"{name}.{field} lies outside of its table")
            table[field] = self.field(kind, at + offset)
        return table

    def field(self, kind: str, at: int) -> Any:
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind], at)
        at = self.follow(at)
        if kind in self.schema:
            return self.table(kind, at)
        count = int(self.scalar(_OFFSET, at))
        at += 4
        self.check(at, count * _ITEM_SIZES.get(kind, 4))
        if kind == "[ubyte]":
            return self.buffer[at : at + count]
        if kind == "[int64]":
            return struct.unpack_from(f"<{count}q", self.memory, at)
        if kind == "string":
            try:
                return bytes(self.memory[at : at + count]).decode()
            except UnicodeDecodeError:
                raise FlatbufferError(f"the text at byte {at} is not UTF-8") from None
        return [self.field(kind[1:-1], at + 4 * index) for index in range(count)]


class _Writer:
    def __init__(self, schema: Schema, identifier: bytes) -> None:
        self.schema = schema
        self.buffer = bytearray(4) + identifier  # the first four bytes point to the root
        self.vtables: dict[bytes, int] = {}
        self.byte_vectors: list[tuple[int, memoryview]] = []  # and where the offsets stand

    def begin(self, pointer: int, alignment: int, skip: int = 0) -> int:
        """Pad so that what follows after `skip` bytes is aligned, and point to what follows."""
        self.buffer += bytes(-(len(self.buffer) + skip) % alignment)
        at = len(self.buffer)
        _OFFSET.pack_into(self.buffer, pointer, at - pointer)
        return at

    def table(self, name: str, table: Table, pointer: int) -> None:
        size = 4  # a table begins with the offset of its vtable
        offsets = []
        for field, kind in self.schema[name].items():
            width = _SCALARS[kind].size if kind in _SCALARS else 4
            size += -size % width
            offsets.append(size if field in table else 0)
            size += width if field in table else 0
        vtable = struct.pack(f"<{2 + len(offsets)}H", 4 + 2 * len(offsets), size, *offsets)
        if vtable not in self.vtables:
            self.vtables[vtable] = len(self.buffer) + len(self.buffer) % 2
            self.buffer += bytes(len(self.buffer) % 2) + vtable
        at = self.begin(pointer, 8)
        self.buffer += bytes(size)
        _VTABLE_OFFSET.pack_into(self.buffer, at, at - self.vtables[vtable])
        for offset, (field, kind) in zip(offsets, self.schema[name].items(), strict=True):
            if kind in _SCALARS and offset:
                _SCALARS[kind].pack_into(self.buffer, at + offset, table[field])
            elif offset:
                self.child(kind, table[field], at + offset)

    def child(self, kind: str, value: Any, pointer: int) -> None:
        if kind in self.schema:
            self.table(kind, value, pointer)
        elif kind == "[ubyte]":
            self.byte_vectors.append((pointer, value))
        elif kind == "[int64]":
            self.begin(pointer, 8, skip=4)
            self.buffer += struct.pack(f"<I{len(value)}q", len(value), *value)
        elif kind == "string":
            self.begin(pointer, 4)
            text = value.encode()
            self.buffer += _OFFSET.pack(len(text)) + text + b"\0"
        else:
            at = self.begin(pointer, 4) + 4
            self.buffer += _OFFSET.pack(len(value)) + bytes(4 * len(value))
            for index, item in enumerate(value):
                self.child(kind[1:-1], item, at + 4 * index)

    def chunks(self) -> list[Chunk]:
        chunks: list[Chunk] = [self.buffer]
        size = len(self.buffer)
        for pointer, data in self.byte_vectors:
            prefix = bytearray(-(size + 4) % ALIGNMENT) + _OFFSET.pack(len(data))
            size += len(prefix)
            _OFFSET.pack_into(self.buffer, pointer, size - 4 - pointer)
            chunks += [prefix, data]
            size += len(data)
            if size > MAX_SIZE:
                raise FlatbufferError(f"it would be larger than {MAX_SIZE} bytes")
        return chunks
