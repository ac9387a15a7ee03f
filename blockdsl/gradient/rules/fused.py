"""Rules of operators of `com.microsoft` that ONNX Runtime fuses activations and products into."""

from __future__ import annotations

import numpy as np

from blockdsl.gradient.registry import vjp
from blockdsl.gradient.rules.activation import gelu_slope, swish, tanh_gelu_slope
from blockdsl.gradient.rules.linalg import matmul
from blockdsl.graph.schema import MICROSOFT
from blockdsl.graph.shapes import permuted
from blockdsl.graph.value import Value


@vjp("Gelu", domain=MICROSOFT)
def gelu(g: Value, y: Value, x: Value) -> Value:
    """y = x P(x)        dx = g (P(x) + x P'(x)), P the normal distribution"""
    return g * gelu_slope(x)


@vjp("BiasGelu", domain=MICROSOFT, broadcast=True)
def bias_gelu(g: Value, y: Value, x: Value, bias: Value) -> tuple[Value, Value]:
    """y = gelu(x + b)        dx = db = g (P(x + b) + (x + b) P'(x + b))"""
    dx = g * gelu_slope(x + bias)
    return dx, dx


@vjp("FastGelu", domain=MICROSOFT, broadcast=True)
def fast_gelu(g: Value, y: Value, x: Value, bias: Value | None) -> tuple[Value, Value]:
    """y = gelu(x + b), approximated by tanh        dx = db = g times the slope there"""
    dx = g * tanh_gelu_slope(x if bias is None else x + bias)
    return dx, dx


@vjp("QuickGelu", domain=MICROSOFT)
def quick_gelu(g: Value, y: Value, x: Value, *, alpha: float | None) -> Value:
    """y = x s, s = sigmoid(a x)        dx = g (s + a y (1 - s))        (a is 1.702 by default)"""
    return swish(g, y, x, alpha=1.702 if alpha is None else alpha)


@vjp("FusedMatMul", domain=MICROSOFT)
def fused_matmul(
    g: Value,
    y: Value,
    a: Value,
    b: Value,
    *,
    alpha: float | None,
    transA: bool,  # noqa: N803  the schema's name
    transB: bool,  # noqa: N803
    transBatchA: bool,  # noqa: N803
    transBatchB: bool,  # noqa: N803
) -> tuple[Value, Value]:
    """y = alpha a' @ b'        da' = alpha g @ b'^T        db' = alpha a'^T @ g"""
    orders = [_order(a.rank, transA, transBatchA), _order(b.rank, transB, transBatchB)]
    factors = [permuted(x, order) for x, order in zip((a, b), orders, strict=True)]
    da, db = matmul(g if alpha in (None, 1) else g * alpha, y, *factors)
    back = [np.argsort(order).tolist() for order in orders]
    return permuted(da, back[0]), permuted(db, back[1])


def _order(rank: int, transposed: bool, batch_inside: bool) -> list[int]:
    """The order in which a factor's axes are multiplied: its batch axes may lie between the two."""
    order = list(range(rank))
    if rank > 1 and batch_inside:
        order = [*order[1:-1], order[0], order[-1]]
    if rank > 1 and transposed:
        order[-2:] = order[:-3:-1]
    return order
