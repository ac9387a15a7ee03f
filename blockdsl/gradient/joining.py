"""Sums of cotangents, and what is cheaper than a sum.

The gradient of a slice is its cotangent in a frame of zeros. Where several slices read one tensor
side by side (the two halves of a rotary embedding, the steps of an unrolled loop), these are joined
instead of framed and added: nothing is written that is zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from onnx import NodeProto, helper

from blockdsl.graph import op
from blockdsl.graph.shapes import typed_as
from blockdsl.graph.value import Value


class Piece(NamedTuple):
    """What stands between the zeros of a tensor that was padded along one axis."""

    parts: list[Value]
    axis: int
    start: int
    end: int
    length: int


def added(a: Any, b: Any) -> Any:
    """`a + b`, two cotangents of one tensor, or of one sequence."""
    if not isinstance(a, Value) or not isinstance(b, Value):
        return a + b
    first, second = _piece(a), _piece(b)
    if first is None or second is None or first.axis != second.axis:
        return a + b
    if first.start > second.start:
        first, second = second, first
    if first.end != second.start:
        return a + b
    joined = op.Concat(*first.parts, *second.parts, axis=first.axis)
    pads = np.zeros((2, joined.rank), np.int64)
    pads[:, first.axis] = first.start, second.length - second.end
    if pads.any():
        joined = op.Pad(joined, pads=pads.reshape(-1), mode="constant")
    return typed_as(joined, a)


def _piece(x: Value) -> Piece | None:
    """A tensor as a piece between zeros, `None` if it is not one of known place."""
    node = x.graph.producer(x)
    if node is None or node.op_type != "Pad" or len(node.input) > 2:
        return None
    settings = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if settings.get("mode", b"constant") != b"constant" or settings.get("value"):
        return None
    pads = settings.get("pads") if len(node.input) < 2 else x.graph.constant_value(node.input[1])
    if pads is None:
        return None
    before, after = np.reshape(pads, (2, -1))
    axes = np.flatnonzero(before | after)
    length = x.shape[axes[0]] if len(axes) == 1 else None
    if not isinstance(length, int) or min(before.min(), after.min()) < 0:
        return None
    axis = int(axes[0])
    inner = x.graph.value(node.input[0])
    return Piece(_parts(inner, axis), axis, int(before[axis]), length - int(after[axis]), length)


def _parts(x: Value, axis: int) -> list[Value]:
    """What a tensor was joined from along an axis."""
    node: NodeProto | None = x.graph.producer(x)
    if node is None or node.op_type != "Concat" or node.domain:
        return [x]
    given = next(a.i for a in node.attribute if a.name == "axis")
    return [x.graph.value(name) for name in node.input] if given % x.rank == axis else [x]
