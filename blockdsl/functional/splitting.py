"""Parts of a tensor along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from blockdsl.functional.padding import END, Count, numbers_to
from blockdsl.graph import current, op
from blockdsl.graph.shapes import concat_shape
from blockdsl.graph.value import Value


def split(x: Value, sizes: Sequence[Count], axis: int) -> tuple[Value, ...]:
    """Split a tensor along an axis into parts of these sizes, static or computed."""
    if current().opset() >= 13 or all(isinstance(n, int) for n in sizes):
        return tuple(op.Split(x, split=concat_shape(*sizes), axis=axis, outputs=len(sizes)))
    edges = [_edge(sizes, i) for i in range(len(sizes) + 1)]
    return tuple(
        _between(x, axis, start, end, size)
        for (start, end), size in zip(pairwise(edges), sizes, strict=True)
    )


def _between(x: Value, axis: int, start: Count, end: Count, size: Count) -> Value:
    """Return the part of an axis between two positions, by an operator of the model's opset."""
    if (isinstance(start, int) and isinstance(end, int)) or current().opset() >= 10:
        return op.Slice(x, starts=concat_shape(start), ends=concat_shape(end), axes=[axis])
    return op.Gather(x, start + numbers_to(size, x.graph), axis=axis)


def _edge(sizes: Sequence[Count], i: int) -> Count:
    """Return the start of part `i`, counted from the end of the axis if that is static."""
    before, behind = sizes[:i], sizes[i:]
    if all(isinstance(n, int) for n in before):
        return sum(before)
    if all(isinstance(n, int) for n in behind):
        return -sum(behind) or END
    return sum(before)
