"""Sliding windows: what convolutions and pools have in common, and its transposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from blockdsl.functional.padding import Count, flipped, length_of, numbers_to, padded
from blockdsl.functional.runtime_shapes import reshape_to
from blockdsl.functional.scatter_sums import count_of
from blockdsl.graph import current, op
from blockdsl.graph.shapes import (
    concat_shape,
    dims_of,
    permuted,
    reshape_like,
    swap_last,
    typed_as,
)
from blockdsl.graph.tensor import is_static
from blockdsl.graph.value import Value


@dataclass(frozen=True)
class Window:
    """The geometry of a window that slides over the axes after the first two."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    """The padding before the first element of each axis."""
    end: tuple[int, ...]

    @classmethod
    def of(
        cls,
        kernel: Sequence[int],
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
    ) -> Window:
        """A window from the attributes of an operator, any of which may be left out."""
        n = len(kernel)
        pads = pads or [0] * (2 * n)
        ones = (1,) * n
        return cls(
            tuple(kernel),
            tuple(strides or ones),
            tuple(dilations or ones),
            tuple(pads[:n]),
            tuple(pads[n:]),
        )

    @property
    def size(self) -> int:
        """The number of elements in a window."""
        return prod(self.kernel)

    @property
    def reach(self) -> tuple[int, ...]:
        """The extent of the window along each axis, dilation included."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def axes(self) -> range:
        """The axes of the tensor that it slides over."""
        return range(2, 2 + len(self.kernel))

    @property
    def is_point(self) -> bool:
        """Whether a window is one element, and none lies in the padding."""
        return self.size == 1 and not any(self.begin + self.end)

    @property
    def overlaps(self) -> bool:
        """Whether an element can lie in several windows."""
        return any(r > s for r, s in zip(self.reach, self.strides, strict=True))

    @property
    def attributes(self) -> dict[str, Any]:
        """The geometry as the attributes of an operator."""
        return {
            "kernel_shape": list(self.kernel),
            "strides": list(self.strides),
            "dilations": list(self.dilations),
            "pads": [*self.begin, *self.end],
        }

    def tiles(self, x: Value, windows: Value) -> bool:
        """Whether each element of a tensor lies in exactly one window."""
        whole = zip(x.shape[2:], windows.shape[2:], self.kernel, strict=True)
        return (
            self.strides == self.kernel == self.reach
            and not any(self.begin + self.end)
            and all(isinstance(n, int) and d == n * k for d, n, k in whole)
        )

    def reaching_beyond(self, auto_pad: str, ceil_mode: bool) -> Window:
        """The window with as much padding at the end as `ceil_mode` can make use of."""
        if not ceil_mode or auto_pad.startswith("SAME"):
            return self
        further = (e + s - 1 for e, s in zip(self.end, self.strides, strict=True))
        return replace(self, end=tuple(further))

    def over(self, x: Value, auto_pad: str) -> tuple[Window, Value, Sequence[Count]]:
        """The window with the padding that `auto_pad` means for a tensor.

        Where that depends on a symbolic size, nodes pad the tensor, and the window has no padding.

        Returns:
            The window, the tensor that it slides over, and where `x` begins in that.
        """
        none = (0,) * len(self.kernel)
        before, after = self.padding(x, auto_pad)
        begin, end = (tuple(p for p in side if isinstance(p, int)) for side in (before, after))
        if len(begin) == len(end) == len(none):
            return replace(self, begin=begin, end=end), x, none
        return replace(self, begin=none, end=none), padded(x, self.axes, before, after), before

    def padding(self, x: Value, auto_pad: str) -> tuple[Sequence[Count], Sequence[Count]]:
        """The padding before and after each axis of a tensor, with what `auto_pad` means for it."""
        if auto_pad == "NOTSET":
            return self.begin, self.end
        if auto_pad == "VALID":
            return [0] * len(self.kernel), [0] * len(self.kernel)
        totals = [self._same_padding(x, axis) for axis in self.axes]
        before = [divided(t + (auto_pad == "SAME_LOWER"), 2) for t in totals]
        return before, [t - b for t, b in zip(totals, before, strict=True)]

    def _same_padding(self, x: Value, axis: int) -> Count:
        """How much padding makes the output as long as the input divided by the stride."""
        size, stride, reach = length_of(x, axis), self.strides[axis - 2], self.reach[axis - 2]
        if stride == 1:
            return reach - 1
        if isinstance(size, int):
            return max((-(-size // stride) - 1) * stride + reach - size, 0)
        windows = divided(size + (stride - 1), stride)
        return op.Relu(((windows - 1) * stride + reach - size).cast(np.float32)).cast(np.int64)

    # -- transposes ----------------------------------------------------------------------------

    def patches(self, x: Value) -> Value:
        """The elements of every window: `[N, C, ...]` becomes `[N * C, elements, windows ...]`.

        A convolution with one-hot kernels: one node, whatever the geometry, and faster than slices.
        """
        planes = reshape_to(x, count_of(x, [0, 1]), [1], dims_of(x, self.axes))
        found: Value = op.Conv(planes, self.one_hot(x), **self.attributes)
        return found

    def one_hot(self, like: Value) -> Value:
        """`[elements, 1, kernel ...]`: kernel i picks element i of a window."""
        eye = np.eye(self.size, dtype=like.dtype)
        return current().add_constant(eye.reshape(self.size, 1, *self.kernel), "one_hot")

    def all_ones(self, like: Value) -> Value:
        """A kernel that adds up the elements of a window."""
        return current().add_constant(np.ones((1, 1, *self.kernel), like.dtype))

    def patches_back(self, g: Value, like: Value) -> Value:
        """The transpose of `patches`: the sum over the windows that an element lies in."""
        planes = reshape_to(like, count_of(like, [0, 1]), [1], dims_of(like, self.axes))
        return reshape_like(self.spread(g, self.one_hot(like), planes), like)

    def spread(self, g: Value, w: Value, like: Value, group: int = 1) -> Value:
        """The transpose of a convolution by `w`: from what it returned to what it took.

        Args:
            g: The cotangent of what the convolution returned.
            w: Its kernels.
            like: What it took.
            group: Its groups.
        """
        if self._turns_into_convolution():
            begin = [r - 1 - b for r, b in zip(self.reach, self.begin, strict=True)]
            end = [r - 1 - e for r, e in zip(self.reach, self.end, strict=True)]
            turned = replace(self, begin=tuple(begin), end=tuple(end))
            made = op.Conv(g, _turned(w, group), group=group, **turned.attributes)
            return typed_as(made, like)
        end, extra, open_axes = list(self.end), [0] * len(self.kernel), []
        for i, axis in enumerate(self.axes):
            size, windows = like.shape[axis], g.shape[axis]
            if isinstance(size, int) and isinstance(windows, int):
                covered = (windows - 1) * self.strides[i] + self.reach[i]
                rest = size + self.begin[i] + self.end[i] - covered
                extra[i] = max(rest, 0)
                end[i] -= min(rest, 0)
            elif self.strides[i] > 1:
                extra[i] = self.strides[i] - 1
                open_axes.append(axis)
        window = replace(self, end=tuple(end))
        made = op.ConvTranspose(g, w, group=group, output_padding=extra, **window.attributes)
        return typed_as(cut_to(made, like, open_axes), like)

    def _turns_into_convolution(self) -> bool:
        """Whether the transpose is a convolution by the turned kernels.

        It is faster than the general form, in groups above all.
        """
        fits = all(p < r for p, r in zip(self.begin + self.end, self.reach * 2, strict=True))
        return fits and all(s == 1 for s in self.strides)

    def kernel_gradient(self, x: Value, g: Value, like: Value, group: int = 1) -> Value:
        """The gradient of a convolution by its kernels.

        Args:
            x: What the convolution takes.
            g: The cotangent of what it returns.
            like: The kernels.
            group: Its groups.
        """
        if self._prefers_swapping(g, like, group):
            return self._kernel_gradient_by_swapping(x, g, like, group)
        if not self.is_point:
            patches = self.patches(x)
        elif any(s > 1 for s in self.strides):
            patches = self._strided(x)
        else:
            patches = x
        batch, groups = dims_of(g, [0]), [group] if group > 1 else []
        windows, inner = count_of(g, self.axes), count_of(like, range(1, like.rank))
        rows = divided(length_of(like, 0), group)
        left = reshape_to(g, batch, groups, rows, windows)
        right = reshape_to(patches, batch, groups, inner, windows)
        if not groups and isinstance(rows, int) and isinstance(windows, int) and rows > windows:
            # One product for the batch: together, those of each would be larger than the patches.
            left, right = (
                reshape_to(t.transpose(1, 0, 2), length_of(t, 1), count_of(t, [0, 2]))
                for t in (left, right)
            )
            return reshape_like(op.MatMul(left, swap_last(right)), like)
        return reshape_like(op.MatMul(left, swap_last(right)).sum(0), like)

    def _strided(self, x: Value) -> Value:
        """The first element of every window of one."""
        if x.graph.opset() < 10:
            return op.MaxPool(x, kernel_shape=list(self.kernel), strides=list(self.strides))
        return x[(slice(None), slice(None), *(slice(None, None, s) for s in self.strides))]

    def _prefers_swapping(self, g: Value, like: Value, group: int) -> bool:
        """Whether patches would be many times larger than the input, for little work each.

        The factor is where it begins to be faster with onnxruntime 1.19.2 and 1.32 on a CPU.
        """
        depthwise = group > 1 and like.shape[0] == group and like.shape[1] == 1
        static = is_static(g.shape[2:])
        return depthwise and static and self.size > 16 * prod(self.strides)

    def _kernel_gradient_by_swapping(self, x: Value, g: Value, like: Value, group: int) -> Value:
        """A convolution of `x` by `g`.

        In it batch and channels, and strides and dilations, change places.
        """
        x, g = (t.transpose(1, 0, *self.axes) for t in (x, g))
        x = reshape_to(x, [1], count_of(x, [0, 1]), dims_of(x, self.axes))
        swapped = replace(self, strides=self.dilations, dilations=self.strides)
        settings = {**swapped.attributes, "kernel_shape": list(g.shape[2:])}
        made = op.Conv(x, g, group=group, **settings)
        index = (slice(None), slice(None), *(slice(0, k) for k in self.kernel))
        return typed_as(made[index].transpose(1, 0, *self.axes), like)


def divided(number: Count, by: int) -> Count:
    """A number divided by another, rounded down."""
    return number // by if isinstance(number, int) else op.Div(number, by)


def cut_to(
    x: Value, like: Value, axes: Sequence[int], first: Sequence[Count] | None = None
) -> Value:
    """The part of `x` that is as long along some axes as another tensor.

    Args:
        x: The longer tensor.
        like: The tensor that says how long.
        axes: The axes.
        first: Where the part begins along each; at the first element by default.
    """
    if first is None:
        axes = [
            a for a in axes if not isinstance(like.shape[a], int) or x.shape[a] != like.shape[a]
        ]
        first = [0] * len(axes)
    if not axes:
        return x
    if x.graph.opset() < 10:
        for axis, begin in zip(axes, first, strict=True):
            x = op.Gather(x, numbers_to(length_of(like, axis), x.graph) + begin, axis=axis)
        return x
    starts, ends = concat_shape(*first), dims_of(like, axes)
    if any(isinstance(f, Value) or f for f in first):
        ends = op.Add(starts, ends)
    return op.Slice(x, starts=starts, ends=ends, axes=list(axes))


def _turned(w: Value, group: int) -> Value:
    """Kernels whose input and output channels change places, every axis of them reversed."""
    spatial = range(2, w.rank)
    w = flipped(w, [axis for axis in spatial if w.shape[axis] != 1])
    if group == 1:
        return w.transpose(1, 0, *spatial)
    rows, kernel = divided(length_of(w, 0), group), dims_of(w, spatial)
    grouped = reshape_to(w, [group], rows, dims_of(w, [1]), kernel)
    swapped = permuted(grouped, [0, 2, 1, *range(3, grouped.rank)])
    return reshape_to(swapped, count_of(swapped, [0, 1]), rows, kernel)
