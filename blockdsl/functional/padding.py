"""The transpose of slicing: a tensor put into a larger one of zeros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from blockdsl.graph import Graph, current, op
from blockdsl.graph.portable import counting, where
from blockdsl.graph.shapes import concat_shape, dims_of, expand, reshape_exactly, typed_as
from blockdsl.graph.value import Value, known_to_be

Count = int | Value
"""A number, or an int64 vector of one element where it is computed when the graph runs."""

END = int(np.iinfo(np.int64).max)
"""The end of a slice that goes to the end of its axis."""

_LONG = 1024
"""Vectors that are longer are not stored in a model but made by it."""


@dataclass(frozen=True)
class Cut:
    """Where the elements along an axis were taken from: `first`, `first + step`, and so on."""

    axis: int
    first: Count
    step: int = 1


def place(x: Value, like: Value, cuts: Sequence[Cut]) -> Value:
    """`x` at the places that it was cut from, and zeros elsewhere.

    Args:
        x: The piece.
        like: The tensor that it was cut from.
        cuts: One for every axis that was cut; the other axes are as long in both.

    Returns:
        A tensor of the shape of `like`.
    """
    axes = [cut.axis for cut in cuts]
    lowest = [
        cut.first if cut.step > 0 else cut.first + (length_of(x, cut.axis) - 1) * cut.step
        for cut in cuts
    ]
    x = flipped(x, [cut.axis for cut in cuts if cut.step < 0])
    for cut in cuts:
        x = _spread(x, cut.axis, abs(cut.step))
    lengths = [length_of(like, axis) for axis in axes]
    before = [smaller(first, length) for first, length in zip(lowest, lengths, strict=True)]
    after = [
        length - first - length_of(x, axis)
        for axis, length, first in zip(axes, lengths, before, strict=True)
    ]
    return typed_as(padded(x, axes, before, after), like)


def padded(x: Value, axes: Sequence[int], before: Sequence[Count], after: Sequence[Count]) -> Value:
    """`x` with zeros around it along some axes; less than none takes elements away."""
    margins = [*before, *after]
    if all(isinstance(m, int) for m in margins):
        pads = np.zeros(2 * x.rank, np.int64)
        pads[[*axes, *(x.rank + a for a in axes)]] = margins
        return op.Pad(x, pads=pads, mode="constant") if pads.any() else x
    if x.graph.opset() >= 11:
        order = np.zeros(2 * x.rank, np.int64)
        order[[*axes, *(x.rank + a for a in axes)]] = range(1, len(margins) + 1)
        return op.Pad(x, pads=op.Gather(concat_shape(0, *margins), order), mode="constant")
    for axis, first, last in zip(axes, before, after, strict=True):
        x = op.Concat(_zeros(x, axis, first), x, _zeros(x, axis, last), axis=axis)
    return x


def flipped(x: Value, axes: Sequence[int]) -> Value:
    """`x` in the opposite order along some axes."""
    if not axes:
        return x
    if x.graph.opset() < 10:
        for axis in axes:
            length = length_of(x, axis)
            x = op.Gather(x, length - 1 - numbers_to(length, x.graph), axis=axis)
        return x
    last, past, back = ([n] * len(axes) for n in (-1, -END, -1))
    return op.Slice(x, starts=last, ends=past, axes=list(axes), steps=back)


def length_of(x: Value, axis: int) -> Count:
    """The length of an axis."""
    length = x.shape[axis]
    return length if isinstance(length, int) else dims_of(x, [axis])


def element_of(vector: Value, i: int) -> Count:
    """An element of a vector of integers."""
    if vector.constant is not None:
        return int(vector.constant[i])
    return op.Gather(vector.cast(TensorProto.INT64), [i], axis=0)


def numbers_to(count: Count, graph: Graph) -> Value:
    """The integers 0, 1, ... below a number."""
    if not isinstance(count, int):
        return counting(count)
    if count > _LONG and graph.opset() >= 11:
        return op.Range(0, count, 1)
    return graph.add_constant(np.arange(count))


def smaller(a: Count, b: Count) -> Count:
    """The smaller one of two lengths."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return 0 if known_to_be(a, 0) or known_to_be(b, 0) else _chosen("Min", a, b)


def larger(a: Count, b: Count) -> Count:
    """The larger one of two numbers."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else _chosen("Max", a, b)


def _chosen(name: str, a: Count, b: Count) -> Count:
    """`Min` or `Max` of two integers, of which one at least is computed."""
    value, other = (a, b) if isinstance(a, Value) else (b, a)
    assert isinstance(value, Value)
    opset = value.graph.opset()
    if opset >= 12:
        return op.Min(value, other) if name == "Min" else op.Max(value, other)
    chosen = value < other if name == "Min" else value > other
    return where(chosen, value, other)


def _spread(x: Value, axis: int, step: int) -> Value:
    """`x` with zeros between its elements, and perhaps after the last, along an axis."""
    if step == 1:
        return x
    before, after = dims_of(x, range(axis)), dims_of(x, range(axis + 1, x.rank))
    shape = concat_shape(before, length_of(x, axis) * step, after)
    x = reshape_exactly(padded(x.unsqueeze(axis + 1), [axis + 1], [0], [step - 1]), shape)
    if x.graph.opset() >= 11:
        return x
    # Only `Pad` takes elements away again where the zeros after the last are too many.
    return op.Slice(x, starts=[0], ends=[1 - step], axes=[axis])


def _zeros(x: Value, axis: int, count: Count) -> Value:
    shape = concat_shape(dims_of(x, range(axis)), count, dims_of(x, range(axis + 1, x.rank)))
    return expand(current().add_constant(np.zeros(1, x.dtype)), shape)
