"""Convolutions, pools, and normalisations over channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun

Array = npt.NDArray[Any]


class ConvTranspose(OpRun):
    """`onnx.reference` confuses groups, and fails on output_shape without auto_pad."""

    op_domain = ""

    def _run(
        self,
        x: Array,
        w: Array,
        b: Array | None = None,
        auto_pad: str = "NOTSET",
        dilations: Sequence[int] | None = None,
        group: int = 1,
        kernel_shape: Sequence[int] | None = None,
        output_padding: Sequence[int] | None = None,
        output_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> tuple[Array]:
        sizes, kernel = np.array(x.shape[2:]), np.array(w.shape[2:])
        n = len(sizes)
        steps, spread = np.array(strides or [1] * n), np.array(dilations or [1] * n)
        begin, end = np.array(pads or [0] * (2 * n)).reshape(2, n)
        full = steps * (sizes - 1) + (output_padding or [0] * n) + spread * (kernel - 1) + 1
        wanted = full
        if output_shape or auto_pad.startswith("SAME"):
            wanted = np.array(output_shape[-n:]) if output_shape else steps * sizes
            total = np.maximum(full - wanted, 0)
            begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            end = total - begin
        columns = np.einsum(
            "ngc...,gcmk->ngmk...",
            x.reshape(len(x), group, -1, *sizes),
            w.reshape(group, w.shape[0] // group, w.shape[1], -1),
        )
        y = np.zeros((len(x), w.shape[1] * group, *np.maximum(full, wanted)), x.dtype)
        for k, offset in enumerate(np.ndindex(*kernel)):
            first = np.array(offset) * spread
            places = _slices(first, first + steps * (sizes - 1) + 1, steps)
            y[places] += columns[:, :, :, k].reshape(len(x), -1, *sizes)
        y = y[_slices(begin, np.maximum(full, wanted) - end, np.ones_like(full))]
        return (y if b is None else y + b.reshape(-1, *[1] * n),)


def _slices(first: Array, past: Array, step: Array) -> Any:
    """An index of slices along the last axes."""
    return (..., *map(slice, first, past, step))


class _Pool(OpRun):
    """What the pools share: the elements of every window, on a new first axis."""

    op_domain = ""

    def _of_windows(self, x: Array, fill: Any, inside: Any = None) -> Array:
        """The elements of the windows.

        Args:
            x: The tensor that they slide over.
            fill: What stands for elements beyond the padding.
            inside: What stands for elements in the padding; the same by default.
        """
        sizes, n = np.array(x.shape[2:]), x.ndim - 2
        kernel = np.array(self._given("kernel_shape"))
        steps = np.array(self._given("strides") or [1] * n)
        spread = np.array(self._given("dilations") or [1] * n)
        reach = spread * (kernel - 1) + 1
        begin, end = np.array(self._given("pads") or [0] * (2 * n)).reshape(2, n)
        auto_pad = self._given("auto_pad") or "NOTSET"
        if auto_pad.startswith("SAME"):
            count = -(-sizes // steps)
            total = np.maximum((count - 1) * steps + reach - sizes, 0)
            begin = (total + (auto_pad == "SAME_LOWER")) // 2
            end = total - begin
        else:
            room = sizes + begin + end - reach
            ceil = bool(self._given("ceil_mode")) and auto_pad == "NOTSET"
            count = (-(-room // steps) if ceil else room // steps) + 1
            count -= (count - 1) * steps >= sizes + begin  # no window begins beyond the input
        beyond = np.maximum((count - 1) * steps + reach - sizes - begin - end, 0)
        x = _padded(
            _padded(x, begin, end, fill if inside is None else inside), 0 * end, beyond, fill
        )
        parts = []
        for offset in np.ndindex(*kernel):
            first = np.array(offset) * spread
            parts.append(x[_slices(first, first + (count - 1) * steps + 1, steps)])
        return np.stack(parts)

    def _given(self, name: str) -> Any:
        return getattr(self, name, None)


def _padded(x: Array, before: Array, after: Array, fill: Any) -> Array:
    margins = [(0, 0), (0, 0), *zip(before, after, strict=True)]
    return np.pad(x, margins, constant_values=fill)


class MaxPool(_Pool):
    """`onnx.reference` is wrong for SAME_LOWER, ceil_mode and dilations in some combinations."""

    def _run(self, x: Array, **_: Any) -> tuple[Array, ...]:
        elements = self._of_windows(x, -np.inf)
        largest = elements.argmax(axis=0)[None]
        y = np.take_along_axis(elements, largest, axis=0)[0]
        if len(self.onnx_node.output) == 1:
            return (y,)
        positions = np.arange(x.size)
        if self._given("storage_order"):
            turned = positions.reshape(*x.shape[:2], *x.shape[:1:-1])
            positions = turned.transpose(0, 1, *range(x.ndim - 1, 1, -1))
        numbers = self._of_windows(positions.reshape(x.shape), -1)
        return y, np.take_along_axis(numbers, largest, axis=0)[0]


class AveragePool(_Pool):
    """As `MaxPool`."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        padding = 1.0 if self._given("count_include_pad") else 0.0
        counts = self._of_windows(np.ones_like(x), 0.0, padding).sum(axis=0)
        return (self._of_windows(x, 0.0).sum(axis=0) / counts,)


class LpPool(_Pool):
    """As `MaxPool`."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        p = self._given("p") or 2
        return ((np.abs(self._of_windows(x, 0.0)) ** p).sum(axis=0) ** (1 / p),)


class GlobalLpPool(OpRun):
    """`onnx.reference` lacks it."""

    op_domain = ""

    def _run(self, x: Array, p: int = 2) -> tuple[Array]:
        over = tuple(range(2, x.ndim))
        return ((np.abs(x) ** p).sum(axis=over, keepdims=True) ** (1 / p),)


class GlobalMaxPool(OpRun):
    """That of `onnx.reference` reduces over too few axes, or too many, in all but 2-D."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class GroupNormalization(OpRun):
    """`onnx.reference` runs its function body, which computes in float32."""

    op_domain = ""

    def _run(
        self,
        x: Array,
        scale: Array,
        bias: Array,
        epsilon: float = 1e-5,
        num_groups: int = 1,
        **_: Any,
    ) -> tuple[Array]:
        grouped = x.reshape(len(x), num_groups, -1)
        centred = grouped - grouped.mean(axis=2, keepdims=True)
        normal = centred / np.sqrt((centred**2).mean(axis=2, keepdims=True) + epsilon)
        factor, offset = (
            np.repeat(t, x.shape[1] // len(t)).reshape(-1, *[1] * (x.ndim - 2))
            for t in (scale, bias)
        )
        return (normal.reshape(x.shape) * factor + offset,)


class LRN(OpRun):
    """`onnx.reference` normalises as many channels as there are samples, and in 2-D only."""

    op_domain = ""

    def _run(
        self, x: Array, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int = 1
    ) -> tuple[Array]:
        before, squares = (size - 1) // 2, x**2
        rows = [slice(max(c - before, 0), c - before + size) for c in range(x.shape[1])]
        sums = np.stack([squares[:, row].sum(axis=1) for row in rows], axis=1)
        return (x / (bias + alpha / size * sums) ** beta,)


class LpNormalization(OpRun):
    """`onnx.reference` adds up x, not its absolute value."""

    op_domain = ""

    def _run(self, x: Array, axis: int = -1, p: int = 2) -> tuple[Array]:
        norm = (np.abs(x) ** p).sum(axis=axis, keepdims=True) ** (1 / p)
        return (np.where(norm == 0, 0, x / norm),)


OPERATORS: list[Any] = [
    AveragePool,
    ConvTranspose,
    GlobalLpPool,
    GlobalMaxPool,
    GroupNormalization,
    LRN,
    LpNormalization,
    LpPool,
    MaxPool,
]
