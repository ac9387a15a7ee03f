"""Single operators of `onnx.reference` that are wrong, missing, or not the same twice."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_softmax_cross_entropy_loss import softmaxcrossentropy

Array = npt.NDArray[Any]


class AffineGrid(OpRun):
    """`onnx.reference` returns float32 whatever the type, and fails on a dimension of one."""

    op_domain = ""

    def _run(self, theta: Array, size: Array, align_corners: int = 0) -> tuple[Array]:
        spatial = [int(n) for n in size[2:]]
        axes = [
            np.linspace(-1, 1, n) if align_corners else (2 * np.arange(n) + 1) / n - 1
            for n in spatial
        ]
        grid = np.meshgrid(*axes, indexing="ij")[::-1]
        points = np.stack([*grid, np.ones(spatial)], axis=-1).reshape(-1, len(spatial) + 1)
        moved = points @ np.swapaxes(theta, 1, 2)
        return (moved.reshape(len(theta), *spatial, len(spatial)).astype(theta.dtype),)


class Dropout(OpRun):
    """`onnx.reference` draws another mask in every run; here the node's name is the seed."""

    op_domain = ""

    def _run(
        self,
        x: Array,
        ratio: Any = None,
        training_mode: Any = None,
        seed: int | None = None,
        **_: Any,
    ) -> tuple[Array, ...]:
        rate = 0.5 if ratio is None else float(ratio)
        mask = np.ones(x.shape, bool)
        y = x
        if training_mode is not None and bool(training_mode) and rate:
            name = zlib.crc32(self.onnx_node.output[0].encode())
            mask = np.random.default_rng(name if seed is None else seed).random(x.shape) >= rate
            y = np.where(mask, x / (1 - rate), 0).astype(x.dtype)
        return (y, mask)[: len(self.onnx_node.output)]


class Erf(OpRun):
    """`onnx.reference` computes it in float32, whatever the type."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return (np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype),)


class GatherElements(OpRun):
    """`onnx.reference` takes no indices that are shorter than the data along another axis."""

    op_domain = ""

    def _run(self, data: Array, indices: Array, axis: int = 0) -> tuple[Array]:
        position: list[Array] = [*np.indices(indices.shape)]
        position[axis] = indices
        return (data[tuple(position)],)


class Gelu(OpRun):
    """`onnx.reference` runs its function body, with an `Erf` of its own."""

    op_domain = ""

    def _run(self, x: Array, approximate: str = "none") -> tuple[Array]:
        if approximate == "tanh":
            share = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        else:
            share = np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2))
        return ((x * (1 + share) / 2).astype(x.dtype),)


class Pad(OpRun):
    """`onnx.reference` takes no negative pads, which remove elements."""

    op_domain = ""

    def _run(
        self,
        x: Array,
        pads: Any = None,
        value: Any = None,
        axes: Any = None,
        mode: Any = "constant",
        **_: Any,
    ) -> tuple[Array]:
        given = np.asarray(pads, int).reshape(2, -1).T
        margins = np.zeros((x.ndim, 2), int)
        margins[np.arange(x.ndim) if axes is None else np.asarray(axes)] = given
        kept = (
            slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, margins, strict=True)
        )
        filled: dict[str, Any] = {}
        if mode == "constant":
            filled["constant_values"] = 0 if value is None else np.asarray(value).item()
        return (np.pad(x[tuple(kept)], np.maximum(margins, 0), mode=mode, **filled),)


class Scatter(OpRun):
    """`onnx.reference` lacks it; since opset 11 it is called ScatterElements."""

    op_domain = ""

    def _run(
        self, data: Array, indices: Array, updates: Array, axis: int = 0, **_: Any
    ) -> tuple[Array]:
        out = data.copy()
        position: list[Array] = [*np.indices(indices.shape)]
        position[axis] = indices
        out[tuple(position)] = updates
        return (out,)


class SoftmaxCrossEntropyLoss(OpRun):
    """`onnx.reference` takes logarithms of probabilities that are 0 in float32."""

    op_domain = ""

    def _run(
        self,
        x: Array,
        labels: Array,
        weights: Array | None = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
    ) -> tuple[Array, ...]:
        both = len(self.onnx_node.output) == 2
        wide = x.astype(np.float64)
        compute: Any = softmaxcrossentropy
        found = compute(wide, labels, weights, reduction, ignore_index, both)
        return tuple(np.asarray(output).astype(x.dtype) for output in found)


class Squeeze(OpRun):
    """`onnx.reference` takes one axis after the other before opset 13, in whatever order."""

    op_domain = ""

    def _run(self, x: Array, axes: Any = None) -> tuple[Array]:
        return (np.squeeze(x, None if axes is None else tuple(np.ravel(axes))),)


class Unique(OpRun):
    """`onnx.reference` sorts what need not be sorted."""

    op_domain = ""

    def _run(self, x: Array, axis: int | None = None, sorted: int = 1) -> tuple[Array, ...]:
        y, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
        order = np.arange(len(first)) if sorted else np.argsort(first)
        inverse = np.argsort(order)[inverse.reshape(-1)]
        found = (np.take(y, order, axis or 0), first[order], inverse, counts[order])
        return found[: len(self.onnx_node.output)]


class Unsqueeze(OpRun):
    """As `Squeeze`."""

    op_domain = ""

    def _run(self, x: Array, axes: Any) -> tuple[Array]:
        return (np.expand_dims(x, tuple(np.ravel(axes))),)


OPERATORS: list[Any] = [
    AffineGrid,
    Dropout,
    Erf,
    GatherElements,
    Gelu,
    Pad,
    Scatter,
    SoftmaxCrossEntropyLoss,
    Squeeze,
    Unique,
    Unsqueeze,
]
