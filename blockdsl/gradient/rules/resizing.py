"""Rules of resampling to another size.

Whatever its mode, resampling is linear and separable: a matrix along each axis. Its columns are
what the operator itself makes of one-hot vectors, so that gradients round, clamp, filter and
extrapolate just as the runtime at hand does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from blockdsl.functional.padding import length_of
from blockdsl.functional.runtime_shapes import identity, reshape_to
from blockdsl.functional.scatter_sums import count_of
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.shapes import concat_shape, dims_of, expand, typed_as
from blockdsl.graph.value import Value


@vjp("Resize")
def resize(
    g: Value,
    y: Value,
    x: Value,
    roi: Value | None,
    scales: Value | None,
    sizes: Value | None,
    *,
    antialias: int,
    axes: Sequence[int] | None,
    coordinate_transformation_mode: str,
    cubic_coeff_a: float,
    exclude_outside: int,
    keep_aspect_ratio_policy: str,
    mode: str,
    nearest_mode: str,
) -> tuple[Value, None, None, None]:
    """y = A x along each axis        dx = Aᵀ g along each        A: what it makes of the unit"""
    settings: dict[str, Any] = {
        "antialias": antialias,
        "coordinate_transformation_mode": coordinate_transformation_mode,
        "cubic_coeff_a": cubic_coeff_a,
        "exclude_outside": exclude_outside,
        "keep_aspect_ratio_policy": keep_aspect_ratio_policy,
        "mode": mode,
        "nearest_mode": nearest_mode,
    }
    repeats = mode == "nearest" and (
        (coordinate_transformation_mode == "asymmetric" and nearest_mode == "floor")
        or (
            coordinate_transformation_mode in ("half_pixel", "pytorch_half_pixel")
            and nearest_mode.startswith("round")
        )
    )
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    given = [a % x.rank for a in axes] if axes else list(range(x.rank))
    resampling = _Resampling(x, y, given, scales, sizes, roi if crops else None, settings)
    return resampling.transpose(g, repeats), None, None, None


@vjp("Upsample")
def upsample(g: Value, y: Value, x: Value, scales: Value, *, mode: str) -> tuple[Value, None]:
    """y = A x along each axis        dx = Aᵀ g along each        A: what it makes of the unit"""
    axes = list(range(x.rank))
    resampling = _Resampling(x, y, axes, scales, None, None, {"mode": mode}, "Upsample")
    return resampling.transpose(g, mode == "nearest"), None


def repeated(x: Value, factors: Sequence[int]) -> Value:
    """Every element repeated along the axes after the first two; for opset 11 and later."""
    return op.Resize(
        x,
        scales=np.array([1, 1, *factors], np.float32),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@dataclass(frozen=True)
class _Resampling:
    """One node that resamples `x` to `y`."""

    x: Value
    y: Value
    axes: list[int]
    """The axes that scales, sizes and region are given for."""
    scales: Value | None
    sizes: Value | None
    region: Value | None
    """Which part of each axis is resampled: all starts, then all ends; all of it if None."""
    settings: dict[str, Any]
    operator: str = "Resize"

    def transpose(self, g: Value, repeats: bool) -> Value:
        """The gradient of `x`.

        Args:
            g: That of `y`.
            repeats: Whether whole scales repeat each element so many times.
        """
        factors = [self._factor(axis) for axis in range(self.x.rank)]
        kernel = [f for f in factors[2:] if f is not None]
        if repeats and factors[:2] == [1, 1] and len(kernel) == self.x.rank - 2 in (1, 2, 3):
            means = op.AveragePool(g, kernel_shape=kernel, strides=kernel)
            return typed_as(means * float(prod(kernel)), self.x)
        for axis in reversed(self.axes):
            if factors[axis] != 1:
                g = _product_along(g, self._matrix(axis), axis)
        return typed_as(g, self.x)

    def _factor(self, axis: int) -> int | None:
        """By how much an axis grows, if it is a whole number that is known."""
        if axis not in self.axes:
            return 1
        if self.region is not None:
            return None
        if self._scaled:
            assert self.scales is not None
            known = self.scales.constant
            scale = None if known is None else float(known[self.axes.index(axis)])
            return int(scale) if scale is not None and scale.is_integer() else None
        before, after = self.x.shape[axis], self.y.shape[axis]
        if isinstance(before, int) and isinstance(after, int):
            return after // before if before and after % before == 0 else None
        return 1 if before is not None and before == after else None

    @property
    def _scaled(self) -> bool:
        """Whether scales were given and not sizes; the other of the two is left out or empty."""
        return self.scales is not None and self.scales.shape != (0,)

    def _matrix(self, axis: int) -> Value:
        """The matrix along an axis: a row for each element of the output."""
        policy = self.settings.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch" and self.sizes is not None:
            return self._matrix_beside_others(axis)
        unit = identity(length_of(self.x, axis), self.x)
        unit = unit.unsqueeze(0, 1)
        columns: Value
        if self.operator == "Upsample":
            columns = op.Upsample(unit, self._at(self.scales, axis, 1.0), **self.settings)
        else:
            columns = op.Resize(unit, **self._target(axis), **self.settings)
        return columns.squeeze(0, 1)

    def _target(self, axis: int) -> dict[str, Any]:
        """Region, scales and sizes for the third of four axes."""
        region = None
        if self.region is not None:
            count = len(self.axes)
            starts = self._at(self.region, axis, 0.0)
            ends = self._at(self.region, axis, 1.0, count)
            region = op.Concat(starts, ends, axis=0)
        if self._scaled:
            return {"roi": region, "scales": self._at(self.scales, axis, 1.0)}
        sizes = concat_shape([1, 1], length_of(self.y, axis), length_of(self.x, axis))
        return {"roi": region, "sizes": sizes}

    def _at(self, values: Value | None, axis: int, other: float, offset: int = 0) -> Any:
        """Four values, of which the third is that of an axis."""
        assert values is not None
        index = self.axes.index(axis) + offset
        known = values.constant
        dtype = np.float32 if values is self.scales else values.dtype
        if known is not None:
            return np.array([other, other, known[index], other], dtype)
        others = np.full(2, other, dtype)
        return op.Concat(others, op.Gather(values, [index]), others[:1], axis=0)

    def _matrix_beside_others(self, axis: int) -> Value:
        """The matrix along an axis where its scale follows from the other axes too.

        One-hot vectors along this axis are resampled together with the others, along which they
        are constant and remain so.
        """
        region = None
        if self.region is not None:  # of all of the others, where nothing is extrapolated
            mine = np.array([a == axis for a in self.axes] * 2)
            whole = np.repeat([0, 1], len(self.axes)) * ~mine
            region = self.region * mine.astype(self.region.dtype) + whole
        place = self.axes.index(axis)
        unit = identity(length_of(self.x, axis), self.x)
        line = [a for a in range(1, 2 + len(self.axes)) if a != 2 + place]
        unit = unit.unsqueeze(0, *line[1:])
        unit = expand(unit, concat_shape(1, length_of(self.x, axis), dims_of(self.x, self.axes)))
        spatial = list(range(2, unit.rank))
        made: Value = op.Resize(unit, region, None, self.sizes, axes=spatial, **self.settings)
        first = [0, *(slice(None) if a in (1, 2 + place) else 0 for a in range(1, made.rank))]
        return made[tuple(first)].transpose()


def _product_along(g: Value, matrix: Value, axis: int) -> Value:
    """The vectors along an axis times a matrix."""
    if axis == g.rank - 1:
        return op.MatMul(g, matrix)
    if axis == g.rank - 2:
        return op.MatMul(matrix.transpose(), g)
    lead, rest = dims_of(g, range(axis)), range(axis + 1, g.rank)
    rows = reshape_to(g, lead, length_of(g, axis), count_of(g, rest))
    product = op.MatMul(matrix.transpose(), rows)
    return reshape_to(product, lead, length_of(product, axis), dims_of(g, rest))
