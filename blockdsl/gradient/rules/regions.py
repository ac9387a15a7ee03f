"""Rules of pools over regions of an image. Regions have no gradient, as in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from blockdsl.functional.padding import Count, length_of, numbers_to
from blockdsl.functional.runtime_shapes import identity, reshape_to
from blockdsl.functional.scatter_sums import add_at, count_of
from blockdsl.gradient.engine import pull_back
from blockdsl.gradient.registry import vjp
from blockdsl.gradient.rules.pooling import lowest
from blockdsl.graph import op
from blockdsl.graph.portable import equal, sign, where
from blockdsl.graph.shapes import dims_of, typed_as
from blockdsl.graph.value import Value


@vjp("RoiAlign")
def roi_align(
    g: Value,
    y: Value,
    x: Value,
    rois: Value,
    batch_indices: Value,
    *,
    coordinate_transformation_mode: str,
    mode: str,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
) -> tuple[Value, None, None]:
    """y = A x Bᵀ for each region        dx = Aᵀ g B, summed over the regions of an image

    A and B, what each row and column counts for, are what the operator makes of one-hot images.
    With mode="max" the gradient is that of what ONNX Runtime computes, on a CPU, and onnx's
    evaluator: the largest among the elements around all points of a bin, each times its weight.
    That is not the largest of the interpolated values, which other runtimes may compute.
    """
    halves = coordinate_transformation_mode == "half_pixel"
    if mode == "max":
        corners = rois * spatial_scale - (0.5 if halves else 0.0)
        high = _Points.of(corners, 1, output_height, length_of(x, 2), sampling_ratio, halves)
        wide = _Points.of(corners, 0, output_width, length_of(x, 3), sampling_ratio, halves)
        again = _largest(op.Gather(x, batch_indices, axis=0), high, wide)
        return pull_back(x.graph, {again: g}, [x])[0], None, None
    settings: dict[str, Any] = {
        "coordinate_transformation_mode": coordinate_transformation_mode,
        "sampling_ratio": sampling_ratio,
        "spatial_scale": spatial_scale,
    }
    images, height, width = (length_of(x, axis) for axis in (0, 2, 3))
    # Along the other axis, of one element, a region of length one reads just that.
    one, first = 1 / spatial_scale, batch_indices * 0
    upright = rois * np.array([0, 1, 0, 1]) + np.array([0, 0, one, 0])
    level = rois * np.array([1, 0, 1, 0]) + np.array([0, 0, 0, one])
    rows = reshape_to(identity(height, x), 1, height, height, 1)
    columns = reshape_to(identity(width, x), 1, width, 1, width)
    settings["output_height"], settings["output_width"] = output_height, 1
    rows = op.RoiAlign(rows, upright, first, **settings)
    settings["output_height"], settings["output_width"] = 1, output_width
    columns = op.RoiAlign(columns, level, first, **settings).squeeze(2).unsqueeze(1)
    across = op.MatMul(g, columns.transpose(0, 1, 3, 2)).transpose(0, 2, 1, 3)
    # Sums over the rows of all regions, those of other images multiplied by zero.
    mine = op.Equal(numbers_to(images, x.graph).unsqueeze(1), batch_indices.unsqueeze(0))
    rows = rows.squeeze(3).transpose(1, 0, 2).unsqueeze(0) * mine.cast(x.elem_type).unsqueeze(1, 3)
    count = count_of(across, [0, 1])
    left = reshape_to(rows, images, height, count)
    right = reshape_to(across, count, count_of(across, [2, 3]))
    dx = reshape_to(op.MatMul(left, right), images, height, dims_of(x, [1]), width)
    return typed_as(dx.transpose(0, 2, 1, 3), x), None, None


@dataclass(frozen=True)
class _Points:
    """The points of the bins of regions along one axis, each of which lies between two elements."""

    weights: Value
    """What each of the two counts for: `[regions, bins, taps, elements]`."""
    live: Value
    """Which taps a region has: `[regions, taps]`."""

    @classmethod
    def of(
        cls, corners: Value, axis: int, bins: int, size: Count, ratio: int, halves: bool
    ) -> _Points:
        """The points of regions.

        Args:
            corners: Corners, `[regions, 4]`.
            axis: 0 along the width, 1 along the height.
            bins: The number of bins.
            size: The length of the image.
            ratio: The number of points of each bin, 0 for as many as it has elements.
            halves: Whether regions may be shorter than one.
        """
        start = corners[:, axis : axis + 1]
        length = corners[:, axis + 2 : axis + 3] - start
        step = (length if halves else length.clip(low=1)) / bins
        count = step * 0 + ratio if ratio else op.Ceil(step)
        most = ratio or count.clip(low=1).max().cast(TensorProto.INT64).unsqueeze(0)
        numbers = numbers_to(most, corners.graph).cast(corners.elem_type)
        share = ((numbers + 0.5) / count.clip(low=1)).unsqueeze(1)
        place = start.unsqueeze(2) + (share + np.arange(bins).reshape(1, -1, 1)) * step.unsqueeze(2)
        elements = numbers_to(size, corners.graph).cast(corners.elem_type)
        inside = (place >= -1) & (place <= elements.max() + 1)
        place = op.Min(op.Relu(place), elements.max())
        below = op.Floor(place)
        there = (place - below) * inside.cast(place.elem_type)
        here = (1 - (place - below)) * inside.cast(place.elem_type)
        taps = [
            equal(tap.unsqueeze(3), elements).cast(place.elem_type) * weight.unsqueeze(3)
            for tap, weight in ((below, here), (below + 1, there))
        ]
        live = numbers < count
        return cls(op.Concat(*taps, axis=2), op.Concat(live, live, axis=1))


def _largest(images: Value, high: _Points, wide: _Points) -> Value:
    """The largest of all elements around the points of each bin, times their weights.

    Args:
        images: An image for each region, `[regions, channels, height, width]`.
        high: The points along the height.
        wide: The points along the width.
    """
    rows, columns = (
        reshape_to(w, dims_of(w, [0]), [1], count_of(w, [1, 2]), dims_of(w, [3]))
        for w in (high.weights, wide.weights)
    )
    products = op.MatMul(op.MatMul(rows, images), columns.transpose(0, 1, 3, 2))
    each = reshape_to(
        products,
        dims_of(images, [0, 1]),
        dims_of(high.weights, [1, 2]),
        dims_of(wide.weights, [1, 2]),
    )
    live = high.live.unsqueeze(1, 2, 4, 5) & wide.live.unsqueeze(1, 2, 3, 4)
    return where(live, each, lowest(images)).max([3, 5])


@vjp("MaxRoiPool")
def max_roi_pool(
    g: Value,
    y: Value,
    x: Value,
    rois: Value,
    *,
    pooled_shape: Sequence[int],
    spatial_scale: float,
) -> tuple[Value, None]:
    """y = max of each bin of a region        dx = g at the first largest element of each, summed"""
    image = op.Gather(rois, [0], axis=1).cast(np.int64).unsqueeze(2, 3)
    corners = rois[:, 1:] * spatial_scale
    corners = sign(corners) * op.Floor(corners.abs() + 0.5)
    columns = _beyond_bins(corners, 0, pooled_shape[1], length_of(x, 3))
    rows = _beyond_bins(corners, 1, pooled_shape[0], length_of(x, 2))
    # First the largest element of each row of a bin, then the row that has the largest of these.
    pictures = op.Gather(x, image.squeeze(1, 2, 3), axis=0).unsqueeze(3) + columns.unsqueeze(1, 2)
    column = op.ArgMax(pictures, axis=4, keepdims=0)
    of_rows = pictures.max(4).unsqueeze(2) + rows.unsqueeze(1, 4)
    row = op.ArgMax(of_rows, axis=3, keepdims=0)
    numbers = numbers_to(length_of(x, 2), x.graph).unsqueeze(1)
    column = (op.Equal(row.unsqueeze(3), numbers).cast(np.int64) * column.unsqueeze(2)).sum(3)
    channel = numbers_to(length_of(x, 1), x.graph).unsqueeze(1, 2)
    plane = image * length_of(x, 1) + channel
    place = (plane * length_of(x, 2) + row) * length_of(x, 3) + column
    held = where(of_rows.max(3) < lowest(x) / 2, 0, g)  # a bin of no elements returns 0
    return add_at(held, place, x), None


def _beyond_bins(corners: Value, axis: int, count: int, size: Count) -> Value:
    """The lowest number for every element outside each bin of a region, along one axis.

    Args:
        corners: Rounded corners, `[regions, 4]`.
        axis: 0 along the width, 1 along the height.
        count: The number of bins.
        size: The length of the image.

    Returns:
        The numbers, `[regions, bins, elements]`.
    """
    start, end = corners[:, axis : axis + 1], corners[:, axis + 2 : axis + 3]
    step = (end - start + 1).clip(low=1) / count
    bins = np.arange(count).reshape(1, -1)
    first = op.Floor(step * bins) + start
    past = op.Ceil(step * (bins + 1)) + start
    elements = numbers_to(size, corners.graph).cast(corners.elem_type)
    inside = (elements >= first.unsqueeze(2)) & (elements < past.unsqueeze(2))
    return (1 - inside.cast(corners.elem_type)) * lowest(corners)
