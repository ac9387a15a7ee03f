"""Sums over large windows: products with matrices that say which window holds which element.

A convolution costs as much as its kernel is large, in time and in memory, even if the input is a
single element. A window is a box, so that one matrix for each axis does the same: elements times
windows, whatever the kernel.
"""

from __future__ import annotations

from blockdsl.functional.padding import length_of, numbers_to
from blockdsl.functional.scatter_sums import product_along
from blockdsl.functional.sliding_windows import Window
from blockdsl.graph import op
from blockdsl.graph.shapes import reshape, typed_as
from blockdsl.graph.value import Value

_LARGE = 1024
"""Elements of a window from which on matrices are cheaper than convolutions, if sizes are open."""


def is_large(window: Window, x: Value) -> bool:
    """Whether matrices are the way to sum over windows: where the kernel would be too large."""
    sizes = [size for size in x.shape[2:] if isinstance(size, int)]
    is_static = len(sizes) == x.rank - 2
    return window.size > _LARGE and not (is_static and window.size < 2 * sum(sizes))


def sum_over_windows(g: Value, x: Value, window: Window, auto_pad: str) -> Value:
    """The transpose of summing the elements of each window.

    Args:
        g: The cotangent of the sums.
        x: The tensor that the window slides over.
        window: The geometry.
        auto_pad: The padding, if that is not part of the geometry.
    """
    for axis, matrix in zip(window.axes, memberships(window, x, g, auto_pad), strict=True):
        g = product_along(g, matrix, axis)
    return typed_as(g, x)


def count_elements(x: Value, windows: Value, window: Window, auto_pad: str) -> Value:
    """The number of elements of `x` in each window: `[1, 1, windows ...]`."""
    counts: Value | None = None
    for axis, matrix in zip(window.axes, memberships(window, x, windows, auto_pad), strict=True):
        shape = [-1 if a == axis else 1 for a in range(x.rank)]
        along = reshape(matrix.sum(0), shape)
        counts = along if counts is None else counts * along
    assert counts is not None
    return counts


def memberships(window: Window, x: Value, windows: Value, auto_pad: str) -> list[Value]:
    """For each axis a matrix of ones where a window (column) holds an element (row), else zeros.

    Args:
        window: The geometry.
        x: The tensor that the window slides over.
        windows: A tensor that has one element for each window.
        auto_pad: The padding, if that is not part of the geometry.
    """
    before, _ = window.padding(x, auto_pad)
    matrices = []
    for i, axis in enumerate(window.axes):
        elements = numbers_to(length_of(x, axis), x.graph).unsqueeze(1)
        starts = numbers_to(length_of(windows, axis), x.graph) * window.strides[i] - before[i]
        matrices.append(_membership(elements - starts, window.reach[i], window.dilations[i], x))
    return matrices


def _membership(offsets: Value, reach: int, dilation: int, like: Value) -> Value:
    inside = op.And(~(offsets < 0), offsets < reach)
    if dilation > 1:
        inside = op.And(inside, op.Equal(offsets - offsets // dilation * dilation, 0))
    return inside.cast(like.elem_type)
