"""Rules of pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from blockdsl.functional.padding import numbers_to
from blockdsl.functional.runtime_shapes import reshape_to
from blockdsl.functional.scatter_sums import add_elements, count_of, positions_in, scatter
from blockdsl.functional.sliding_windows import Window, cut_to
from blockdsl.functional.window_sums import count_elements, is_large, sum_over_windows
from blockdsl.gradient.registry import vjp
from blockdsl.gradient.rules.resizing import repeated
from blockdsl.graph import current, op
from blockdsl.graph.portable import sign, where
from blockdsl.graph.shapes import (
    concat_shape,
    dims_of,
    expand,
    expand_like,
    reshape,
    reshape_like,
    share_of,
    typed_as,
)
from blockdsl.graph.value import Value


@vjp("MaxPool")
def max_pool(
    g: Any,
    y: Any,
    x: Value,
    *,
    auto_pad: str,
    ceil_mode: bool,
    dilations: Sequence[int] | None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None,
    storage_order: int,
    strides: Sequence[int] | None,
) -> Value:
    """y = max of each window        dx = g at the first largest element of each, summed

    Of equal elements the first one gets the gradient, as in PyTorch.
    """
    window = Window.of(kernel_shape, strides, dilations, pads)
    if x.graph.opset() >= (16 if window.overlaps else 9):
        return _to_indices(g[0], y[1], x, window.overlaps, storage_order)
    if x.graph.opset() >= 8 and is_large(window, x):
        return _to_indices_in_planes(g[0], y[1], x, storage_order)
    return _to_largest(g[0], x, window, auto_pad, ceil_mode)


def _to_indices(g: Value, indices: Value, x: Value, repeats: bool, storage_order: int) -> Value:
    """`g` at the flat positions that the operator returned."""
    terms, places = reshape(g, [-1]), reshape(indices, [-1])
    flat = scatter(terms, places, concat_shape(count_of(x)), 0, repeats)
    return _ordered(flat, x, storage_order)


def _to_indices_in_planes(g: Value, indices: Value, x: Value, storage_order: int) -> Value:
    """As `_to_indices`, for opsets in which nothing adds at indices: each plane by itself."""
    planes, size = count_of(x, [0, 1]), count_of(x, range(2, x.rank))
    terms, places = (reshape_to(t, planes, -1) for t in (g, indices))
    first = (numbers_to(planes, x.graph) * size).unsqueeze(1)
    flat = add_elements(terms, places - first, reshape_to(x, planes, size), axis=1)
    return _ordered(flat, x, storage_order)


def _ordered(flat: Value, x: Value, storage_order: int) -> Value:
    """The elements of `x` by the flat positions that `storage_order` gives them."""
    if not storage_order:
        return reshape_like(flat, x)
    axes = range(2, x.rank)  # the positions count along the first of these first
    turned = reshape_to(flat, dims_of(x, [0, 1]), dims_of(x, axes[::-1]))
    return typed_as(turned.transpose(0, 1, *axes[::-1]), x)


def _to_largest(g: Value, x: Value, window: Window, auto_pad: str, ceil_mode: bool) -> Value:
    """`g` at the largest element of each window, for opsets in which nothing adds at indices."""
    reaching = window.reaching_beyond(auto_pad, ceil_mode)
    settled, inner, first = reaching.over(x, auto_pad)
    axes = list(window.axes)
    planes = reshape_to(g, count_of(g, [0, 1]), [1], dims_of(g, axes))
    inside = _over_ones(reaching, x, auto_pad, window.one_hot(x))
    elements = settled.patches(inner) + (1 - inside) * lowest(x)
    if reaching != window:
        elements = cut_to(elements, planes, axes)
    largest = op.ArgMax(elements, axis=1, keepdims=1)
    numbers = np.arange(window.size).reshape(-1, *[1] * len(axes))
    chosen = op.Equal(largest, numbers).cast(x.elem_type) * planes
    dx = window.over(x, auto_pad)[0].patches_back(chosen, inner)
    return dx if inner is x else typed_as(cut_to(dx, x, axes, first), x)


@vjp("AveragePool")
def average_pool(
    g: Value,
    y: Value,
    x: Value,
    *,
    auto_pad: str,
    ceil_mode: bool,
    count_include_pad: bool,
    dilations: Sequence[int] | None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> Value:
    """y = mean of each window        dx = g / n to every element of each, summed"""
    window = Window.of(kernel_shape, strides, dilations, pads)
    padded = any(window.begin + window.end) or auto_pad.startswith("SAME")
    if not ceil_mode and (count_include_pad or not padded):
        return _sums_back(g * (1 / window.size), x, window, auto_pad)
    ones = _ones(x)
    shares = op.AveragePool(
        ones,
        auto_pad=auto_pad,
        ceil_mode=int(ceil_mode) if x.graph.opset() >= 10 else None,
        count_include_pad=int(count_include_pad),
        dilations=dilations,
        kernel_shape=list(kernel_shape),
        pads=pads,
        strides=strides,
    )
    if is_large(window, x):
        counts = count_elements(x, shares, window, auto_pad)
        return _sums_back(g * (shares / counts.clip(low=1)), x, window, auto_pad)
    # By how much a runtime divides a window that ends in the padding is its own: ask it.
    reaching = window.reaching_beyond(auto_pad, ceil_mode)
    counts = _over_ones(reaching, x, auto_pad, window.all_ones(x))
    if reaching != window:
        counts = cut_to(counts, shares, window.axes)
    return _sums_back(g * (shares / counts.clip(low=1)), x, window, auto_pad)


def _sums_back(g: Value, x: Value, window: Window, auto_pad: str) -> Value:
    """The transpose of summing each window."""
    if window.tiles(x, g) and x.graph.opset() >= 11:
        return typed_as(repeated(g, window.kernel), x)
    if is_large(window, x):
        return sum_over_windows(g, x, window, auto_pad)
    settled, inner, first = window.over(x, auto_pad)
    axes = window.axes
    planes = reshape_to(g, count_of(g, [0, 1]), [1], dims_of(g, axes))
    like = reshape_to(inner, count_of(inner, [0, 1]), [1], dims_of(inner, axes))
    dx = reshape_like(settled.spread(planes, window.all_ones(x), like), inner)
    return dx if inner is x else typed_as(cut_to(dx, x, axes, first), x)


def _ones(x: Value) -> Value:
    """One plane of ones."""
    one = current().add_constant(np.ones([1] * x.rank, x.dtype))
    return expand(one, concat_shape([1, 1], dims_of(x, range(2, x.rank))))


def _over_ones(window: Window, x: Value, auto_pad: str, kernels: Value) -> Value:
    """A convolution of ones: how many elements of `x`, or which, each window holds."""
    settled, ones, _ = window.over(_ones(x), auto_pad)
    sums: Value = op.Conv(ones, kernels, **settled.attributes)
    return sums


@vjp("LpPool")
def lp_pool(
    g: Value,
    y: Value,
    x: Value,
    *,
    auto_pad: str,
    ceil_mode: bool,
    dilations: Sequence[int] | None,
    kernel_shape: Sequence[int],
    p: int,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> Value:
    """y = (sum |x|^p)^(1/p)        dx = sign(x) |x|^(p-1) sum(g / y^(p-1))        (0 if y = 0)"""
    window = Window.of(kernel_shape, strides, dilations, pads)
    return slope_of_power(x, p) * _sums_back(divided_by_power(g, y, p - 1), x, window, auto_pad)


@vjp("GlobalAveragePool")
def global_average_pool(g: Value, y: Value, x: Value) -> Value:
    """y = mean of each channel        dx = g / n"""
    return expand_like(g * share_of(x, range(2, x.rank)), x)


@vjp("GlobalMaxPool")
def global_max_pool(g: Value, y: Value, x: Value) -> Value:
    """y = max of each channel        dx = g at the first largest element"""
    rows = reshape_to(x, dims_of(x, [0, 1]), count_of(x, range(2, x.rank)))
    first = op.ArgMax(rows, axis=2, keepdims=1)
    terms = reshape_to(g, dims_of(x, [0, 1]), [1])
    return reshape_like(add_elements(terms, first, rows, axis=2, repeats=False), x)


@vjp("GlobalLpPool")
def global_lp_pool(g: Value, y: Value, x: Value, *, p: int) -> Value:
    """y = (sum |x|^p)^(1/p)        dx = sign(x) |x|^(p-1) g / y^(p-1)        (0 if y = 0)"""
    return slope_of_power(x, p) * divided_by_power(g, y, p - 1)


@vjp("MaxUnpool")
def max_unpool(
    g: Value,
    y: Value,
    x: Value,
    indices: Value,
    output_shape: Value | None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> tuple[Value, None, None]:
    """y = x at indices, 0 elsewhere        dx = g at indices

    Where indices repeat each x gets the gradient, as in PyTorch.
    """
    if output_shape is None:
        return typed_as(op.Gather(reshape(g, [-1]), indices, axis=0), x), None, None
    # What the indices count in, this shape or the one without it, runtimes disagree on. So send
    # numbers the same way and see where they arrive; 0 arrives wherever none does.
    numbers = 1 + positions_in(x).cast(np.float32)
    arrived = op.MaxUnpool(
        numbers, indices, output_shape, kernel_shape=list(kernel_shape), pads=pads, strides=strides
    )
    places, terms = reshape(arrived.cast(np.int64), [-1]), reshape(g, [-1])
    found = scatter(terms, places, concat_shape(1 + count_of(x)), 0, repeats=False)
    return reshape_like(found[1:], x), None, None


def slope_of_power(x: Value, p: int) -> Value:
    """The derivative of |x|^p / p."""
    if p == 1:
        return sign(x)
    return x if p == 2 else x * x.abs() ** (p - 2)


def lowest(x: Value) -> float:
    """A finite number below all that is to be found by a maximum, in the type of a tensor."""
    return -6e4 if x.elem_type == TensorProto.FLOAT16 else -3e38


def divided_by_power(g: Value, y: Value, exponent: int) -> Value:
    """The quotient g / y^exponent for y >= 0, and 0 where y is 0."""
    if exponent == 0:
        return g
    positive = y > 0
    base = where(positive, y, 1)
    return where(positive, g / (base if exponent == 1 else base**exponent), 0)
