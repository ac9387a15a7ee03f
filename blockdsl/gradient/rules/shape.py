"""Rules of operators that move elements without looking at them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from blockdsl.gradient.registry import vjp
from blockdsl.gradient.rules.placing import END, Count, element_of, length_of, numbers_to
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
    return g.squeeze(*axes.constant.tolist()), None


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
    sizes = [length_of(x, axis) for x in xs]
    if g.graph.opset() >= 13 or all(isinstance(n, int) for n in sizes):
        return tuple(op.Split(g, split=concat_shape(*sizes), axis=axis, outputs=len(xs)))
    edges = [_edge(sizes, i) for i in range(len(xs) + 1)]
    return tuple(
        _between(g, axis, start, end, size)
        for (start, end), size in zip(pairwise(edges), sizes, strict=True)
    )


def _between(g: Value, axis: int, start: Count, end: Count, size: Count) -> Value:
    """The part of an axis between two places, by an operator that the opset has."""
    if (isinstance(start, int) and isinstance(end, int)) or g.graph.opset() >= 10:
        return op.Slice(g, starts=concat_shape(start), ends=concat_shape(end), axes=[axis])
    return op.Gather(g, start + numbers_to(size, g.graph), axis=axis)


def _edge(sizes: Sequence[Count], i: int) -> Count:
    """Where part `i` begins, counted from the end of the axis if that needs no computation."""
    before, behind = sizes[:i], sizes[i:]
    if all(isinstance(n, int) for n in before):
        return sum(before)
    if all(isinstance(n, int) for n in behind):
        return -sum(behind) or END
    return sum(before)


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
