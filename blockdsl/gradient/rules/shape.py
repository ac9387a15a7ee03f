"""Rules of operators that move elements without looking at them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blockdsl.functional.padding import Count, element_of, length_of
from blockdsl.functional.splitting import split as split_into
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.shapes import concat_shape, permuted, reshape_exactly, reshape_like
from blockdsl.graph.value import Value, known_to_be


@vjp("Identity")
def identity(g: Value, y: Value, x: Value) -> Value:
    """y = x        dx = g"""
    return g


@vjp("Reshape")
def reshape_(g: Value, y: Value, x: Value, shape: Value | None) -> tuple[Value, None]:
    """y = x in another shape        dx = g in the shape of x"""
    return reshape_like(g, x), None


@vjp("Flatten")
def flatten(g: Value, y: Value, x: Value) -> Value:
    """y = x as a matrix        dx = g in the shape of x"""
    return reshape_like(g, x)


@vjp("Squeeze")
def squeeze(g: Value, y: Value, x: Value, axes: Value | None) -> tuple[Value, None]:
    """y = x without axes of length one        dx = g with them"""
    removed = axes.constant if axes is not None else None
    if removed is None:
        return reshape_like(g, x), None
    return g.unsqueeze(*removed.tolist()), None


@vjp("Unsqueeze")
def unsqueeze(g: Value, y: Value, x: Value, axes: Value) -> tuple[Value, None]:
    """y = x with more axes of length one        dx = g without them"""
    if axes.constant is None:
        return reshape_like(g, x), None
    return g.squeeze(*axes.constant.reshape(-1).tolist()), None  # one axis may be a scalar


@vjp("Transpose")
def transpose(g: Value, y: Value, x: Value, *, perm: Sequence[int] | None) -> Value:
    """y = x with its axes permuted        dx = g with the inverse permutation"""
    order = perm or list(reversed(range(x.rank)))
    return permuted(g, np.argsort(order).tolist())


@vjp("Expand", broadcast=True)
def expand(g: Value, y: Value, x: Value, shape: Value) -> tuple[Value, None]:
    """y = x, repeated along axes        dx = sum of g along these"""
    return g, None


@vjp("Tile")
def tile(g: Value, y: Value, x: Value, repeats: Value) -> tuple[Value, None]:
    """y = x, one copy after the other        dx = sum of g over the copies"""
    parts: list[Count] = []
    copies = []
    for axis in range(x.rank):
        times = element_of(repeats, axis)
        if not known_to_be(times, 1):
            copies.append(len(parts))
            parts.append(times)
        parts.append(length_of(x, axis))
    return reshape_exactly(g, concat_shape([], *parts)).sum(copies), None


@vjp("Concat")
def concat(g: Value, y: Value, *xs: Value, axis: int | None) -> tuple[Value, ...]:
    """y = x1, x2, ... along an axis        dxi = its part of g"""
    if len(xs) == 1:
        return (g,)
    axis = (1 if axis is None else axis) % g.rank
    return split_into(g, [length_of(x, axis) for x in xs], axis)


@vjp("Split")
def split(
    g: Sequence[Value], y: Sequence[Value], x: Value, split: Value | None, *, axis: int
) -> tuple[Value, None]:
    """y1, y2, ... = x, cut along an axis        dx = g1, g2, ... joined"""
    return op.Concat(*g, axis=axis % x.rank), None


@vjp("DepthToSpace")
def depth_to_space(g: Value, y: Value, x: Value, *, blocksize: int, mode: str | None) -> Value:
    """y = x, blocks of channels moved to pixels        dx = g, pixels moved back"""
    if mode != "CRD":
        return op.SpaceToDepth(g, blocksize=blocksize)
    n, _, height, width = (length_of(x, axis) for axis in range(4))
    depth = length_of(y, 1)
    blocks = concat_shape(n, depth, height, blocksize, width, blocksize)
    return reshape_like(reshape_exactly(g, blocks).transpose(0, 1, 3, 5, 2, 4), x)


@vjp("SpaceToDepth")
def space_to_depth(g: Value, y: Value, x: Value, *, blocksize: int, mode: str | None) -> Value:
    """y = x, blocks of pixels moved to channels        dx = g, channels moved back"""
    return op.DepthToSpace(g, blocksize=blocksize, mode="CRD" if mode == "CRD" else None)


@vjp("ReverseSequence")
def reverse_sequence(
    g: Value, y: Value, x: Value, sequence_lens: Value, *, batch_axis: int, time_axis: int
) -> tuple[Value, None]:
    """y = x, the beginning of each sequence reversed        dx = g, reversed likewise"""
    dx = op.ReverseSequence(g, sequence_lens, batch_axis=batch_axis, time_axis=time_axis)
    return dx, None


@vjp("Trilu")
def trilu(g: Value, y: Value, x: Value, k: Value | None, *, upper: bool) -> tuple[Value, None]:
    """y = x above or below a diagonal        dx = g there"""
    return op.Trilu(g, k, upper=upper), None
