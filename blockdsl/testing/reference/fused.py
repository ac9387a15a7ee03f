"""Operators of `com.microsoft` that `onnx.reference` does not know."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun

Array = npt.NDArray[Any]


class Gelu(OpRun):
    """x times the normal distribution; what it ignores belongs to the operator of ONNX."""

    op_domain = "com.microsoft"

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        share = np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2))
        return ((x * (1 + share) / 2).astype(x.dtype),)


class BiasGelu(OpRun):
    """`Gelu` of a sum."""

    op_domain = "com.microsoft"

    def _run(self, x: Array, bias: Array) -> tuple[Array]:
        share = np.vectorize(math.erf, otypes=[np.float64])((x + bias) / math.sqrt(2))
        return (((x + bias) * (1 + share) / 2).astype(x.dtype),)


class FastGelu(OpRun):
    """`BiasGelu`, approximated by tanh."""

    op_domain = "com.microsoft"

    def _run(self, x: Array, bias: Array | None = None) -> tuple[Array]:
        z = x if bias is None else x + bias
        share = np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))
        return ((z * (1 + share) / 2).astype(x.dtype),)


class QuickGelu(OpRun):
    """x times a sigmoid."""

    op_domain = "com.microsoft"

    def _run(self, x: Array, alpha: float = 1.702) -> tuple[Array]:
        return ((x / (1 + np.exp(-alpha * x))).astype(x.dtype),)


class FusedMatMul(OpRun):
    """A scaled product of factors whose axes are exchanged first."""

    op_domain = "com.microsoft"

    def _run(
        self,
        a: Array,
        b: Array,
        alpha: float = 1.0,
        transA: int = 0,  # noqa: N803
        transB: int = 0,  # noqa: N803
        transBatchA: int = 0,  # noqa: N803
        transBatchB: int = 0,  # noqa: N803
    ) -> tuple[Array]:
        left, right = _moved(a, transA, transBatchA), _moved(b, transB, transBatchB)
        return ((alpha * (left @ right)).astype(a.dtype),)


def _moved(x: Array, transposed: int, batch_inside: int) -> Array:
    if x.ndim > 1 and batch_inside:
        x = np.moveaxis(x, 0, -2)
    return np.swapaxes(x, -1, -2) if x.ndim > 1 and transposed else x


OPERATORS: list[Any] = [BiasGelu, FastGelu, FusedMatMul, Gelu, QuickGelu]
