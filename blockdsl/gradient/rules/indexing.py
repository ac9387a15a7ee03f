"""Rules of operators that read from places given by indices."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from blockdsl.functional.padding import (
    Count,
    Cut,
    element_of,
    larger,
    length_of,
    place,
    smaller,
)
from blockdsl.functional.runtime_shapes import reshape_to
from blockdsl.functional.scatter_sums import (
    add_along,
    add_at,
    add_elements,
    count_of,
    depth_of,
    flat,
    nonnegative,
    positions_in,
    row_numbers,
    rows_of,
    typed_beside,
)
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.shapes import dims_of, reshape_like, typed_as
from blockdsl.graph.value import Value

_FAR = 2**31 - 1
"""Exporters write this, or a larger number, for the end of an axis."""


@vjp("Slice")
def slice_(
    g: Value,
    y: Value,
    x: Value,
    starts: Value,
    ends: Value,
    axes: Value | None,
    steps: Value | None,
) -> tuple[Value | None, ...]:
    """y = x[start:end:step]        dx = g at the places it was read from, 0 elsewhere"""
    count = starts.shape[0]
    known = np.arange(count) if isinstance(count, int) else None
    known_axes = known if axes is None else axes.constant
    known_steps = np.ones_like(known_axes) if steps is None else steps.constant
    if known is None or known_axes is None or known_steps is None:
        read = op.Slice(positions_in(x), starts, ends, axes, steps)
        return add_at(g, read, x, repeats=False), None, None, None, None
    cuts = [
        _cut(g, x, int(axis) % x.rank, element_of(starts, i), element_of(ends, i), int(step))
        for i, (axis, step) in enumerate(zip(known_axes, known_steps, strict=True))
    ]
    return place(g, x, cuts), None, None, None, None


def _cut(g: Value, x: Value, axis: int, start: Count, end: Count, step: int) -> Cut:
    """Where a slice begins: what counts from the end or lies outside the axis is set right."""
    length = length_of(x, axis)
    if isinstance(start, int) and isinstance(length, int):
        return Cut(axis, max(range(length)[start::step].start, 0), step)
    if isinstance(start, int) and isinstance(end, int) and start < 0 and end >= _FAR and step == 1:
        return Cut(axis, length - length_of(g, axis))
    if isinstance(start, int):
        first = start if start >= 0 else length + start
    else:
        first = nonnegative(start, length)
    if step < 0:
        first = smaller(first, length - 1)
    if not isinstance(start, int) or start < -1:
        first = larger(first, 0)
    return Cut(axis, first, step)


@vjp("Gather")
def gather(g: Value, y: Value, data: Value, indices: Value, *, axis: int) -> tuple[Value, None]:
    """y = data[indices]        ddata = sum of g over the places read, 0 where none was"""
    axis %= data.rank
    g = _with_one_axis(g, data, indices, axis)
    found = indices.constant
    if found is not None and found.size:
        ddata = _gather_constant(g, data, found.reshape(-1), axis)
        if ddata is not None:
            return ddata, None
    numbers = flat(indices).cast(TensorProto.INT64)
    return typed_as(add_along(g, numbers, length_of(data, axis), axis), data), None


def _with_one_axis(g: Value, data: Value, indices: Value, axis: int) -> Value:
    """The cotangent with one axis where the axes of the indices are."""
    if indices.rank == 1:
        return g
    if indices.rank == 0:
        return g.unsqueeze(axis)
    before, after = dims_of(data, range(axis)), dims_of(data, range(axis + 1, data.rank))
    return typed_beside(reshape_to(g, before, count_of(indices), after), data, axis)


def _gather_constant(g: Value, data: Value, read: np.ndarray, axis: int) -> Value | None:
    """The gradient for indices that are evenly spaced, or all there are in another order."""
    length = data.shape[axis]
    if isinstance(length, int):
        read = read % length
    gaps = set(np.diff(read).tolist())
    if len(gaps) <= 1 and 0 not in gaps and len(set(read < 0)) == 1:
        first = int(read[0])
        start = first if first >= 0 else length_of(data, axis) + first
        return place(g, data, [Cut(axis, start, gaps.pop() if gaps else 1)])
    if isinstance(length, int) and sorted(read) == list(range(length)):
        return op.Gather(g, np.argsort(read), axis=axis)
    return None


@vjp("GatherElements")
def gather_elements(
    g: Value, y: Value, data: Value, indices: Value, *, axis: int
) -> tuple[Value, None]:
    """y = data[.., indices, ..], each by itself        ddata = sum of g over the places read"""
    numbers = indices.cast(TensorProto.INT64)
    return add_elements(g, numbers, data, axis % data.rank), None


@vjp("GatherND")
def gather_nd(
    g: Value, y: Value, data: Value, indices: Value, *, batch_dims: int | None
) -> tuple[Value, None]:
    """y = data[i, j, ..]        ddata = sum of g over the places read, 0 where none was"""
    batch = batch_dims or 0
    numbers = row_numbers(data, indices, batch)
    indexed = batch + depth_of(indices)
    terms, count = rows_of(g, data, indexed), count_of(data, range(indexed))
    return reshape_like(add_along(terms, numbers, count, 0), data), None
