"""Reading images at other positions: grids, regions, other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_resize, op_roi_align

Array = npt.NDArray[Any]


class GridSample(OpRun):
    """`onnx.reference` rounds positions to float32, and does not know the modes of opset 16.

    It clamps positions in cubic mode too, which neither ONNX Runtime nor PyTorch does.
    """

    op_domain = ""

    def _run(
        self,
        x: Array,
        grid: Array,
        align_corners: int = 0,
        mode: str = "linear",
        padding_mode: str = "zeros",
    ) -> tuple[Array]:
        y = np.zeros((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
        for n, channel in np.ndindex(*x.shape[:2]):
            for position in np.ndindex(*grid.shape[1:-1]):
                axes = [
                    _taps(float(coordinate), size, bool(align_corners), mode, padding_mode)
                    for coordinate, size in zip(grid[n][position][::-1], x.shape[2:], strict=True)
                ]
                for taps in product(*axes):
                    index = tuple(i for i, _ in taps)
                    weight = np.prod([w for _, w in taps])
                    y[(n, channel, *position)] += weight * x[(n, channel, *index)]
        return (y,)


def _taps(
    coordinate: float, size: int, align_corners: bool, mode: str, padding_mode: str
) -> list[tuple[int, float]]:
    """The indices that a coordinate between -1 and 1 reads, and with what weights."""
    low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
    place = low + (coordinate + 1) / 2 * (high - low)
    if mode == "nearest":
        place = float(np.rint(place))
    if not low <= place <= high and not mode.endswith("cubic"):
        place = _inside(place, low, high, size, padding_mode)
    below = int(np.floor(place))
    offsets, weights = _weights(place - below, mode)
    taps = []
    for offset, weight in zip(offsets, weights, strict=True):
        index = below + offset
        if not 0 <= index < size:
            if padding_mode == "zeros":
                continue
            index = int(_inside(index, low, high, size, padding_mode))
        taps.append((index, weight))
    return taps


def _inside(place: float, low: float, high: float, size: int, padding_mode: str) -> float:
    if padding_mode == "border":
        return min(max(place, 0.0), size - 1.0)
    while padding_mode == "reflection" and not low <= place <= high:
        place = 2 * low - place if place < low else 2 * high - place
    return place


def _weights(t: float, mode: str) -> tuple[Sequence[int], Sequence[float]]:
    if mode == "nearest":
        return [0], [1.0]
    if mode.endswith("linear"):
        return [0, 1], [1 - t, t]
    return [-1, 0, 1, 2], [_cubic(abs(t - o)) for o in (-1, 0, 1, 2)]


def _cubic(s: float, a: float = -0.75) -> float:
    """The kernel of convolution interpolation."""
    if s <= 1:
        return (a + 2) * s**3 - (a + 3) * s**2 + 1
    return a * s**3 - 5 * a * s**2 + 8 * a * s - 4 * a


class DeformConv(OpRun):
    """`onnx.reference` reads through GridSample, with its rounding."""

    op_domain = ""

    def _run(
        self,
        x: Array,
        w: Array,
        offset: Array,
        b: Array | None = None,
        mask: Array | None = None,
        dilations: Sequence[int] | None = None,
        group: int = 1,
        kernel_shape: Sequence[int] | None = None,
        offset_group: int = 1,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> tuple[Array]:
        kernel, rank = w.shape[2:], x.ndim - 2
        sizes = offset.shape[2:]
        shifts = offset.reshape(len(x), offset_group, *kernel, rank, *sizes)
        factors = np.ones((len(x), offset_group, *kernel, *sizes), x.dtype)
        if mask is not None:
            factors = mask.reshape(factors.shape)
        y = np.zeros((len(x), len(w), *sizes), x.dtype)
        for n, m in np.ndindex(*y.shape[:2]):
            for c, (element, position) in product(
                range(w.shape[1]), product(np.ndindex(*kernel), np.ndindex(*sizes))
            ):
                channel = m // (len(w) // group) * w.shape[1] + c
                which = channel // (x.shape[1] // offset_group)
                place = [
                    position[a] * (strides or [1] * rank)[a]
                    - (pads or [0] * rank)[a]
                    + element[a] * (dilations or [1] * rank)[a]
                    + shifts[(n, which, *element, a, *position)]
                    for a in range(rank)
                ]
                axes = [_line(p, size) for p, size in zip(place, x.shape[2:], strict=True)]
                for taps in product(*axes):
                    read = x[(n, channel, *(i for i, _ in taps))] * np.prod([t for _, t in taps])
                    factor = factors[(n, which, *element, *position)]
                    y[(n, m, *position)] += read * factor * w[(m, c, *element)]
        return (y if b is None else y + b.reshape(-1, *[1] * rank),)


def _line(place: float, size: int) -> list[tuple[int, float]]:
    """The elements on both sides of a position, and their weights."""
    below = int(np.floor(place))
    taps = [(below, below + 1 - place), (below + 1, place - below)]
    return [(index, weight) for index, weight in taps if 0 <= index < size]


class MaxRoiPool(OpRun):
    """`onnx.reference` lacks it."""

    op_domain = ""

    def _run(
        self, x: Array, rois: Array, pooled_shape: Sequence[int], spatial_scale: float = 1.0
    ) -> tuple[Array]:
        y = np.zeros((len(rois), x.shape[1], *pooled_shape), x.dtype)
        for r, (image, *corners) in enumerate(rois):
            left, top, right, bottom = (
                int(np.copysign(np.floor(abs(c * spatial_scale) + 0.5), c)) for c in corners
            )
            rows = _bins(top, bottom, pooled_shape[0], x.shape[2])
            columns = _bins(left, right, pooled_shape[1], x.shape[3])
            for (i, row), (j, column) in product(enumerate(rows), enumerate(columns)):
                part = x[int(image), :, row, column]
                if part.size:
                    y[r, :, i, j] = part.max(axis=(1, 2))
        return (y,)


def _bins(start: int, end: int, count: int, size: int) -> list[slice]:
    step = max(end - start + 1, 1) / count
    edges = [
        (start + int(np.floor(b * step)), start + int(np.ceil((b + 1) * step)))
        for b in range(count)
    ]
    return [slice(min(max(a, 0), size), min(max(b, 0), size)) for a, b in edges]


class RoiAlign(op_roi_align.RoiAlign):
    """`onnx.reference` shifts by half a pixel before opset 16 too."""

    op_domain = ""

    def _run(self, *inputs: Any, **given: Any) -> Any:
        if self.run_params["opsets"].get("", 16) < 16:
            given["coordinate_transformation_mode"] = "output_half_pixel"
        return super()._run(*inputs, **given)  # type: ignore[no-untyped-call]


class Resize(op_resize.Resize):
    """`onnx.reference` knows neither the form of opset 10 nor axes that count from the end."""

    op_domain = ""

    def _run(self, x: Array, *inputs: Any, **given: Any) -> Any:  # type: ignore[override]
        if self.run_params["opsets"].get("", 13) < 11:
            return super()._run(x, None, inputs[0], mode=given["mode"], **_BEFORE_OPSET_11)
        region, scales, sizes = (*inputs, None, None, None)[:3]
        if given.get("axes") is not None:
            given["axes"] = [a % x.ndim for a in given["axes"]]
        scales, sizes = (t if np.size(t) else None for t in (scales, sizes))
        return super()._run(x, region, scales, sizes, **given)


class Upsample(op_resize.Resize):
    """`onnx.reference` knows whole scales only, and not those that are an attribute."""

    op_domain = ""

    def _run(  # type: ignore[override]
        self, x: Array, scales: Any = None, mode: str = "nearest", **_: Any
    ) -> Any:
        attribute = [a.floats for a in self.onnx_node.attribute if a.name == "scales"]
        scales = np.array(attribute[0]) if attribute else scales
        return super()._run(x, None, scales, mode=mode, **_BEFORE_OPSET_11)


_BEFORE_OPSET_11 = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}

OPERATORS: list[Any] = [DeformConv, GridSample, MaxRoiPool, Resize, RoiAlign, Upsample]
