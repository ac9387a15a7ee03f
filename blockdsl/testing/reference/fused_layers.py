"""Layers of ONNX Runtime's optimisers, which `onnx.reference` does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_conv

Array = npt.NDArray[Any]

MICROSOFT = "com.microsoft"

_ACTIVATIONS: dict[str, Callable[..., Array]] = {
    "": lambda x: x,
    "Relu": lambda x: np.maximum(x, 0),
    "Tanh": np.tanh,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "LeakyRelu": lambda x, alpha=0.01: np.where(x < 0, alpha * x, x),
    "Clip": lambda x, low, high: np.clip(x, low, high),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: np.clip(alpha * x + beta, 0, 1),
}


class FusedGemm(OpRun):
    """A `Gemm` and an activation."""

    op_domain = MICROSOFT

    def _run(
        self,
        a: Array,
        b: Array,
        c: Array | None = None,
        alpha: float = 1.0,
        beta: float = 1.0,
        transA: int = 0,  # noqa: N803
        transB: int = 0,  # noqa: N803
        activation: str = "",
        **settings: Any,
    ) -> tuple[Array]:
        y = alpha * ((a.T if transA else a) @ (b.T if transB else b))
        y = y if c is None else y + beta * c
        given = {k.removeprefix("activation_"): v for k, v in settings.items() if v is not None}
        return (_ACTIVATIONS[activation](y, **given).astype(a.dtype),)


class FusedConv(OpRun):
    """A convolution, another tensor, and an activation."""

    op_domain = MICROSOFT

    def _run(
        self,
        x: Array,
        w: Array,
        b: Array | None = None,
        z: Array | None = None,
        auto_pad: str = "NOTSET",
        dilations: Any = None,
        group: int = 1,
        kernel_shape: Any = None,
        pads: Any = None,
        strides: Any = None,
        activation: str = "",
        activation_params: Any = (),
    ) -> tuple[Array]:
        convolve: Callable[..., Array] = op_conv._conv_implementation
        shape = kernel_shape or w.shape[2:]
        y = convolve(x, w, b, auto_pad, dilations, group, shape, pads, strides)
        y = y if z is None else y + z
        return (_ACTIVATIONS[activation](y, *activation_params).astype(x.dtype),)


class SimplifiedLayerNormalization(OpRun):
    """Division by the root of the mean square."""

    op_domain = ""

    def _run(
        self, x: Array, scale: Array, axis: int = -1, epsilon: float = 1e-5, **_: Any
    ) -> tuple[Array, ...]:
        axes = tuple(range(axis % x.ndim, x.ndim))
        root = 1 / np.sqrt((x**2).mean(axis=axes, keepdims=True) + epsilon)
        return (x * root * scale, root)[: len(self.onnx_node.output)]


class SkipLayerNormalization(OpRun):
    """The normalisation of a sum."""

    op_domain = MICROSOFT

    def _run(
        self,
        x: Array,
        skip: Array,
        gamma: Array,
        beta: Array | None = None,
        bias: Array | None = None,
        epsilon: float = 1e-12,
    ) -> tuple[Array, ...]:
        total = x + skip if bias is None else x + skip + bias
        y = _normalised(total, epsilon) * gamma
        return (y if beta is None else y + beta, total, total, total)[: len(self.onnx_node.output)]


class SkipSimplifiedLayerNormalization(OpRun):
    """The simplified normalisation of a sum."""

    op_domain = MICROSOFT

    def _run(
        self, x: Array, skip: Array, gamma: Array, bias: Array | None = None, epsilon: float = 1e-12
    ) -> tuple[Array, ...]:
        total = x + skip if bias is None else x + skip + bias
        y = total / np.sqrt((total**2).mean(axis=-1, keepdims=True) + epsilon) * gamma
        return (y, total, total, total)[: len(self.onnx_node.output)]


class EmbedLayerNormalization(OpRun):
    """The normalisation of a sum of embeddings."""

    op_domain = MICROSOFT

    def _run(
        self,
        words: Array,
        segments: Array | None,
        word_table: Array,
        position_table: Array,
        segment_table: Array | None,
        gamma: Array,
        beta: Array,
        mask: Array | None = None,
        positions: Array | None = None,
        epsilon: float = 1e-12,
        mask_index_type: int = 0,
    ) -> tuple[Array, ...]:
        places = np.arange(words.shape[1]) if positions is None else positions
        total = word_table[words] + position_table[places]
        if segments is not None and segment_table is not None:
            total = total + segment_table[segments]
        lengths = np.zeros(len(words), np.int32) if mask is None else mask.sum(1, dtype=np.int32)
        y = _normalised(total, epsilon) * gamma + beta
        return (y, lengths, total)[: len(self.onnx_node.output)]


def _normalised(x: Array, epsilon: float) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    normal: Array = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon)
    return normal


class MatMulNBits(OpRun):
    """A product with weights of a few bits, several to a byte."""

    op_domain = MICROSOFT

    def _run(
        self,
        a: Array,
        b: Array,
        scales: Array,
        zero_points: Array | None = None,
        g_idx: Array | None = None,
        bias: Array | None = None,
        K: int = 0,  # noqa: N803
        N: int = 0,  # noqa: N803
        bits: int = 4,
        block_size: int = 32,
        **_: Any,
    ) -> tuple[Array]:
        numbers = _unpacked(b.reshape(N, -1), bits).reshape(N, -1, block_size).astype(a.dtype)
        blocks = numbers.shape[1]
        if zero_points is None:
            zeros = np.full((N, blocks), 2 ** (bits - 1), a.dtype)
        elif zero_points.dtype == np.uint8:
            zeros = _unpacked(zero_points.reshape(N, -1), bits)[:, :blocks].astype(a.dtype)
        else:
            zeros = zero_points.reshape(N, blocks)
        weight = (numbers - zeros[..., None]) * scales.reshape(N, blocks, 1)
        y = a @ weight.reshape(N, -1)[:, :K].T
        return (y if bias is None else y + bias,)


def _unpacked(packed: Array, bits: int) -> Array:
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers: Array = packed[..., None] >> shifts & (2**bits - 1)
    return numbers.reshape(len(packed), -1)


OPERATORS: list[Any] = [
    EmbedLayerNormalization,
    FusedConv,
    FusedGemm,
    MatMulNBits,
    SimplifiedLayerNormalization,
    SkipLayerNormalization,
    SkipSimplifiedLayerNormalization,
]
