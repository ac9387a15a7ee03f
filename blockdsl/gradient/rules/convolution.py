"""Rules of convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from blockdsl.errors import GradientError
from blockdsl.functional.padding import larger, length_of, padded
from blockdsl.functional.runtime_shapes import identity, reshape_to
from blockdsl.functional.scatter_sums import count_of
from blockdsl.functional.sliding_windows import Window, cut_to
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.shapes import dims_of, reshape_like, typed_as
from blockdsl.graph.value import Value


@vjp("Conv")
def conv(
    g: Value,
    y: Value,
    x: Value,
    w: Value,
    b: Value | None,
    *,
    auto_pad: str,
    dilations: Sequence[int] | None,
    group: int,
    kernel_shape: Sequence[int] | None,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> tuple[Value, Value, Value | None]:
    """y = x * w + b        dx = g *ᵀ w        dw = g · windows of x        db = g summed"""
    window = Window.of(kernel_extent(w, kernel_shape), strides, dilations, pads)
    window, inner, first = window.over(x, auto_pad)
    dx = window.spread(g, w, inner, group)
    if inner is not x:
        dx = typed_as(cut_to(dx, x, window.axes, first), x)
    return dx, window.kernel_gradient(inner, g, w, group), sum_over_positions(g, b)


@vjp("ConvTranspose")
def conv_transpose(
    g: Value,
    y: Value,
    x: Value,
    w: Value,
    b: Value | None,
    *,
    auto_pad: str,
    dilations: Sequence[int] | None,
    group: int,
    kernel_shape: Sequence[int] | None,
    output_padding: Sequence[int] | None,
    output_shape: Sequence[int] | None,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> tuple[Value, Value, Value | None]:
    """y = x *ᵀ w + b        dx = g * w        dw = x · windows of g        db = g summed"""
    window = Window.of(kernel_extent(w, kernel_shape), strides, dilations, pads)
    extra = output_padding or [0] * len(window.kernel)
    if output_shape and not all(isinstance(x.shape[axis], int) for axis in window.axes):
        window, g_seen = _padded_when_run(window, x, g, auto_pad, extra)
    else:
        if output_shape or auto_pad.startswith("SAME"):
            window = _padded_to(window, x, auto_pad, extra, output_shape)
        window, g_seen = _matched(window, x, g, extra)
    dx = typed_as(op.Conv(g_seen, w, group=group, **window.attributes), x)
    return dx, window.kernel_gradient(g_seen, x, w, group), sum_over_positions(g, b)


def _padded_to(
    window: Window,
    x: Value,
    auto_pad: str,
    extra: Sequence[int],
    output_shape: Sequence[int] | None,
) -> Window:
    """The window with the padding that leaves an output of the shape asked for."""
    begin, end = [], []
    for i, axis in enumerate(window.axes):
        size, stride = x.shape[axis], window.strides[i]
        full = extra[i] + window.reach[i] - stride  # beyond one stride for every input
        if output_shape:
            assert isinstance(size, int)
            full += stride * size - output_shape[i + len(output_shape) - len(window.kernel)]
        total = max(full, 0)
        begin.append(total // 2 if auto_pad == "SAME_UPPER" else total - total // 2)
        end.append(total - begin[-1])
    return replace(window, begin=tuple(begin), end=tuple(end))


def _padded_when_run(
    window: Window, x: Value, g: Value, auto_pad: str, extra: Sequence[int]
) -> tuple[Window, Value]:
    """A window without padding, and `g` with the padding that the lengths of `x` leave."""
    before, after = [], []
    for i, axis in enumerate(window.axes):
        size, length, stride = length_of(x, axis), length_of(g, axis), window.strides[i]
        total = larger(size * stride + (extra[i] + window.reach[i] - stride) - length, 0)
        half = total // 2 if isinstance(total, int) else op.Div(total, 2)
        before.append(half if auto_pad == "SAME_UPPER" else total - half)
        after.append(size * stride + (window.reach[i] - stride) - length - before[-1])
    none = (0,) * len(window.kernel)
    return replace(window, begin=none, end=none), padded(g, window.axes, before, after)


def _matched(window: Window, x: Value, g: Value, extra: Sequence[int]) -> tuple[Window, Value]:
    """The window, and the part of `g`, for which a convolution gives as many elements as `x`."""
    end = []
    for i, axis in enumerate(window.axes):
        size, length = x.shape[axis], g.shape[axis]
        if isinstance(size, int) and isinstance(length, int):
            needed = window.strides[i] * (size - 1) + window.reach[i]
            end.append(needed - length - window.begin[i])
        else:
            end.append(window.end[i] - extra[i])
    unread = [min(e, 0) for e in end]
    if any(unread):
        g = g[(slice(None), slice(None), *(slice(None, n or None) for n in unread))]
    return replace(window, end=tuple(max(e, 0) for e in end)), g


@vjp("Col2Im")
def col2im(
    g: Value,
    y: Value,
    x: Value,
    image_shape: Value,
    block_shape: Value,
    *,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> tuple[Value, None, None]:
    """y = windows x, summed where they overlap        dx = windows of g"""
    known = block_shape.constant
    if known is not None:
        patches = Window.of(known.tolist(), strides, dilations, pads).patches(g)
    else:
        size = op.ReduceProd(block_shape, axes=[0], keepdims=1)
        kernels = reshape_to(identity(size, g), size, 1, block_shape)
        planes = reshape_to(g, count_of(g, [0, 1]), 1, dims_of(g, range(2, g.rank)))
        patches = op.Conv(planes, kernels, strides=strides, dilations=dilations, pads=pads)
    return reshape_like(patches, x), None, None


def kernel_extent(w: Value, given: Sequence[int] | None) -> Sequence[int]:
    """The extent of the kernels."""
    if given:
        return given
    kernel = [d for d in w.shape[2:] if isinstance(d, int)]
    if len(kernel) < w.rank - 2:
        raise GradientError(
            f"The gradient of a convolution needs the extent of its kernels, and {str(w)!r} is "
            f"{w.type}: give the node a kernel_shape."
        )
    return kernel


def sum_over_positions(g: Value, b: Value | None) -> Value | None:
    """The gradient of a bias: a sum over everything but the channels."""
    return None if b is None else typed_as(g.sum([0, *range(2, g.rank)]), b)
