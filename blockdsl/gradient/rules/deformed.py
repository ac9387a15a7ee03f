"""The rule of deformable convolution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blockdsl.functional.padding import length_of, numbers_to
from blockdsl.functional.runtime_shapes import reshape_to
from blockdsl.functional.scatter_sums import count_of
from blockdsl.functional.sliding_windows import Window, divided
from blockdsl.gradient.registry import vjp
from blockdsl.gradient.rules.convolution import kernel_extent, sum_over_positions
from blockdsl.gradient.rules.sampling import LINEAR, Line, Reading
from blockdsl.graph import op
from blockdsl.graph.shapes import dims_of, expand, reshape_like, swap_last
from blockdsl.graph.value import Value


@vjp("DeformConv")
def deform_conv(
    g: Value,
    y: Value,
    x: Value,
    w: Value,
    offset: Value,
    b: Value | None,
    mask: Value | None,
    *,
    dilations: Sequence[int] | None,
    group: int,
    kernel_shape: Sequence[int] | None,
    offset_group: int,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> tuple[Value | None, ...]:
    """y = w (mask s) + b        ds = mask (wᵀ g)        dmask = sum(s wᵀ g)        dw = g (mask s)ᵀ

    s is what is read of x at the shifted positions; dx and doffset are those of reading.
    """
    window = Window.of(kernel_extent(w, kernel_shape), strides, dilations, pads)
    rank, positions = len(window.kernel), count_of(g, window.axes)
    # What has one set of positions comes first: a sample and a group of offsets.
    sets = count_of(offset, [0]) * offset_group
    channels = divided(length_of(x, 1), offset_group)
    image = reshape_to(x, sets, channels, count_of(x, window.axes))
    shifts = reshape_to(offset, sets, window.size, rank, positions)
    lines = []
    for axis in range(rank):
        line = Line.along(x, axis + 2, x, align_corners=True)
        place = _regular(window, axis, g) + shifts[:, :, axis]
        lines.append(line.taps(reshape_to(place, sets, window.size * positions), LINEAR, "zeros"))
    reading = Reading.of(lines, [length_of(x, axis) for axis in window.axes])

    read = (reading.values(image) * reading.weight.unsqueeze(1)).sum(2)
    weight = None if mask is None else reshape_to(mask, sets, 1, window.size * positions)
    columns = read if weight is None else read * weight
    batch, inner = dims_of(x, [0]), count_of(w, range(1, w.rank))
    columns = reshape_to(columns, batch, group, inner, positions)
    seed = reshape_to(g, batch, group, divided(length_of(w, 0), group), positions)
    dw = reshape_like(op.MatMul(seed, swap_last(columns)).sum(0), w)
    kernels = reshape_to(w, group, divided(length_of(w, 0), group), inner)
    dcolumns = reshape_to(
        op.MatMul(swap_last(kernels), seed), sets, channels, window.size * positions
    )
    dmask = None
    if mask is not None and weight is not None:
        dmask = reshape_like((dcolumns * read).sum(1), mask)
        dcolumns = dcolumns * weight
    dx = reshape_like(reading.add_back(dcolumns, count_of(x, window.axes)), x)
    slopes = [
        reshape_to(s, sets, window.size, 1, positions) for s in reading.slopes_of(dcolumns, image)
    ]
    doffset = reshape_like(op.Concat(*slopes, axis=2), offset)
    return dx, dw, doffset, sum_over_positions(g, b), dmask


def _regular(window: Window, axis: int, g: Value) -> Value:
    """Where elements are along an axis before they are shifted: `[elements, windows]`."""
    steps = np.indices(window.kernel)[axis].reshape(-1, 1) * window.dilations[axis]
    first = numbers_to(length_of(g, axis + 2), g.graph) * window.strides[axis] - window.begin[axis]
    others = [a for a in range(len(window.kernel)) if a != axis]
    spread = expand(first.unsqueeze(*others), dims_of(g, window.axes))
    places: Value = reshape_to(spread, 1, count_of(g, window.axes)) + steps
    return places.cast(g.elem_type)
