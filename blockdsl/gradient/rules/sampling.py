"""Rules of reading images at computed positions: grids and deformed convolutions.

Along each axis a position lies between taps, and the weight of each tap is a polynomial of how far
the position is beyond the whole number below it. What is read is a sum over the taps of all axes:
of elements times products of weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from blockdsl.functional.padding import Count, length_of
from blockdsl.functional.runtime_shapes import reshape_to
from blockdsl.functional.scatter_sums import count_of, scatter
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.portable import where
from blockdsl.graph.shapes import concat_shape, dims_of, expand, ones_like, reshape_like, typed_as
from blockdsl.graph.tensor import NARROW
from blockdsl.graph.value import Value

_NEAREST = np.array([[1.0]])
LINEAR = np.array([[1.0, -1], [0, 1]])
"""A row for each tap, a column for each power of the distance from the tap below."""
_CUBIC = np.array(  # convolution interpolation with a = -0.75
    [[0, -0.75, 1.5, -0.75], [1, 0, -2.25, 1.25], [0, 0.75, 1.5, -1.25], [0, 0, -0.75, 0.75]]
)


@vjp("GridSample")
def grid_sample(
    g: Value, y: Value, x: Value, grid: Value, *, align_corners: int, mode: str, padding_mode: str
) -> tuple[Value, Value | None]:
    """y = sum of w x at taps        dx = w g added at taps        dgrid = sum of g x dw/dgrid

    A position that is clamped has the gradient zero; one that is rounded has none.
    """
    elem_type = TensorProto.FLOAT if grid.elem_type in NARROW else grid.elem_type
    axes = range(2, x.rank)
    points = reshape_to(
        grid.cast(elem_type), dims_of(grid, [0]), count_of(grid, range(1, grid.rank - 1)), len(axes)
    )
    weights = {"n": _NEAREST, "l": LINEAR, "c": _CUBIC}[mode.removeprefix("bi")[0]]
    lines, factors = [], []
    for axis in axes:
        line = Line.along(x, axis, points, bool(align_corners))
        given = points[:, :, x.rank - 1 - axis]
        place = given * line.scale + line.middle
        if mode == "nearest":
            place = op.Round(place)
        slope = None
        if weights is not _CUBIC:  # whose positions stay where they are, beyond the edges too
            place, slope = line.kept_inside(place, padding_mode)
        lines.append(line.taps(place, weights, padding_mode))
        factors.append(line.scale if slope is None else slope * line.scale)
    reading = Reading.of(lines, [length_of(x, axis) for axis in axes])
    flat, seed = (
        reshape_to(t.cast(elem_type), dims_of(t, [0, 1]), count_of(t, range(2, t.rank)))
        for t in (x, g)
    )
    dx = reshape_like(reading.add_back(seed, count_of(x, axes)), x).cast(x.elem_type)
    if mode == "nearest":
        return dx, None
    slopes = reading.slopes_of(seed, flat)
    parts = [(s * f).unsqueeze(2) for s, f in zip(slopes, factors, strict=True)]
    return dx, reshape_like(op.Concat(*parts[::-1], axis=2), grid).cast(grid.elem_type)


@vjp("AffineGrid")
def affine_grid(
    g: Value, y: Value, theta: Value, size: Value, *, align_corners: int
) -> tuple[Value, None]:
    """y = theta p        dtheta = g pᵀ, summed over the points p: the grid itself, and a 1"""
    rank = 2 if theta.shape[1] in (2, None) else 3
    # Not in float16, in which ONNX Runtime fails on a batch of one.
    unit = np.eye(rank, rank + 1, dtype=np.float32 if theta.elem_type in NARROW else theta.dtype)
    regular = op.AffineGrid(unit[None], concat_shape([1], size[1:]), align_corners=align_corners)
    count = count_of(g, range(1, g.rank - 1))
    flat = reshape_to(regular.cast(theta.elem_type), count, rank)
    points = op.Concat(flat, ones_like(flat[:, :1]), axis=1)
    seed = reshape_to(g, dims_of(g, [0]), count, rank)
    return typed_as(op.MatMul(seed.transpose(0, 2, 1), points), theta), None


@dataclass(frozen=True)
class Line:
    """One axis of an image, in numbers of elements from the first one."""

    last: Value | float
    """The position of the last element."""
    scale: Value | float
    """How many elements a unit of the grid is."""
    middle: Value | float
    """The position of the grid's zero."""
    low: float
    """The edge before the first element; that after the last is as far from it."""

    @classmethod
    def along(cls, x: Value, axis: int, like: Value, align_corners: bool) -> Line:
        """The axis of a tensor, in the type of another.

        Args:
            x: The tensor.
            axis: The axis.
            like: A tensor of the type to compute in.
            align_corners: Whether the ends of the grid are the outermost elements or their edges.
        """
        count = length_of(x, axis)
        last: Value | float
        last = (
            float(count - 1)
            if isinstance(count, int)
            else (count - 1).cast(like.elem_type).squeeze(0)
        )
        low = 0.0 if align_corners else -0.5
        return cls(last, (last - 2 * low) * 0.5, last * 0.5, low)

    def kept_inside(self, place: Value, padding_mode: str) -> tuple[Value, Value | None]:
        """A position clamped or reflected to the axis, and the slope of that, None if it is 1."""
        if padding_mode == "zeros":
            return place, None
        if padding_mode == "reflection":
            return self._reflected(place)
        inside = (place >= self.low) & (place <= self.last - self.low)
        clamped = where(inside, place, place.clip(0, self.last))
        return clamped, inside.cast(place.elem_type)

    def taps(self, place: Value, weights: np.ndarray, padding_mode: str) -> _Taps:
        """The taps of positions.

        Args:
            place: The positions: `[batch, positions]`.
            weights: The polynomials of their weights.
            padding_mode: What lies beyond the ends.
        """
        below = op.Floor(place)
        offsets = np.arange(len(weights)).reshape(1, -1, 1) - (len(weights) - 1) // 2
        index = below.unsqueeze(1) + offsets.astype(place.dtype)
        distance = place - below
        powers = [ones_like(distance)]
        while len(powers) < weights.shape[1]:
            powers.append(powers[-1] * distance if len(powers) > 1 else distance)
        vector = op.Concat(*(p.unsqueeze(1) for p in powers), axis=1)
        steeper = np.roll(weights * np.arange(weights.shape[1]), -1, axis=1)
        weight, slope = (
            op.MatMul(matrix.astype(place.dtype), vector) for matrix in (weights, steeper)
        )
        if padding_mode == "zeros":
            inside = ((index >= 0) & (index <= self.last)).cast(place.elem_type)
            weight, slope = weight * inside, slope * inside
        elif padding_mode == "reflection":
            index, _ = self._reflected(index)
        return _Taps(index.clip(0, self.last).cast(np.int64), weight, slope)

    def _reflected(self, place: Value) -> tuple[Value, Value]:
        """A position reflected at the edges until it is between them, and the slope of that."""
        span = self.last - 2 * self.low
        span = max(span, 1.0) if isinstance(span, float) else op.Max(span, 1)
        there = place - self.low
        phase = there - op.Floor(there / (span * 2)) * (span * 2)
        beyond = phase - span
        return span + self.low - beyond.abs(), where(beyond > 0, -1, ones_like(place))


@dataclass(frozen=True)
class _Taps:
    """Taps along one axis, or of several together: all three are `[batch, taps, positions]`."""

    index: Value
    weight: Value
    slope: Value


@dataclass(frozen=True)
class Reading:
    """Which elements of a flat image are read for each position, and with what weights."""

    index: Value
    """`[batch, taps, positions]`, as the others."""
    weight: Value
    slopes: tuple[Value, ...]
    """The derivative of the weights by the position along each axis."""

    @classmethod
    def of(cls, lines: Sequence[_Taps], sizes: Sequence[Count]) -> Reading:
        """The taps along all axes of an image of these sizes together."""
        index, weight, slopes = lines[0].index, lines[0].weight, [lines[0].slope]
        for line, size in zip(lines[1:], sizes[1:], strict=True):
            index = _each(index * size, line.index, "Add")
            slopes = [_each(s, line.weight, "Mul") for s in slopes]
            slopes.append(_each(weight, line.slope, "Mul"))
            weight = _each(weight, line.weight, "Mul")
        return cls(index, weight, tuple(slopes))

    def values(self, x: Value) -> Value:
        """What is read at the taps of a flat image: `[batch, channels, taps, positions]`."""
        read = op.GatherElements(x, self._spread(x), axis=2)
        return reshape_to(read, dims_of(x, [0, 1]), dims_of(self.index, [1, 2]))

    def add_back(self, g: Value, count: Count) -> Value:
        """What a flat image of that many elements gets of the cotangent of what was read."""
        terms = g.unsqueeze(2) * self.weight.unsqueeze(1)
        flat = reshape_to(terms, dims_of(g, [0, 1]), count_of(self.index, [1, 2]))
        return scatter(
            flat, self._spread(g), concat_shape(dims_of(g, [0, 1]), count), 2, repeats=True
        )

    def slopes_of(self, g: Value, x: Value) -> list[Value]:
        """The gradient of the positions along each axis, given the cotangent of what was read."""
        aligned = (g.unsqueeze(2) * self.values(x)).sum(1)
        return [(aligned * slope).sum(1) for slope in self.slopes]

    def _spread(self, like: Value) -> Value:
        """The indices, flat and for every channel."""
        flat = reshape_to(self.index, dims_of(self.index, [0]), [1], count_of(self.index, [1, 2]))
        return expand(flat, concat_shape(dims_of(like, [0, 1]), count_of(self.index, [1, 2])))


def _each(outer: Value, inner: Value, operator: str) -> Value:
    """Every tap of one axis combined with every tap of another, as taps of both."""
    pairs = getattr(op, operator)(outer.unsqueeze(2), inner.unsqueeze(1))
    return reshape_to(pairs, dims_of(pairs, [0]), count_of(pairs, [1, 2]), dims_of(pairs, [3]))
