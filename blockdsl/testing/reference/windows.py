"""Convolutions and pools."""

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
        y = np.zeros((len(x), w.shape[1] * group, *full), x.dtype)
        for k, offset in enumerate(np.ndindex(*kernel)):
            first = np.array(offset) * spread
            places = tuple(map(slice, first, first + steps * (sizes - 1) + 1, steps))
            y[(..., *places)] += columns[:, :, :, k].reshape(len(x), -1, *sizes)
        y = y[(..., *map(slice, begin, full - end))]
        return (y if b is None else y + b.reshape(-1, *[1] * n),)


OPERATORS: list[Any] = [ConvTranspose]
