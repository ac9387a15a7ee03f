"""Normalization to mean 0 and variance 1, and its vjp."""

from __future__ import annotations

from collections.abc import Sequence

from blockdsl.graph import current, op
from blockdsl.graph.shapes import share_of
from blockdsl.graph.value import Value


def standardize(x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value]:
    """Return z = (x - mean(x)) r and r = 1 / sqrt(var(x) + epsilon), over some axes."""
    centred = x - x.mean(axes, keepdims=True)
    root = 1 / (centred.square().mean(axes, keepdims=True) + epsilon).sqrt()
    return centred * root, root


def standardize_vjp(g: Value, z: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """Return g - mean(g) - z mean(g z), sum(g) and sum(g z).

    The vjp of `standardize` by x is r times the first.
    """
    share = share_of(z, axes)
    total, aligned = (t.sum(axes, keepdims=True) for t in (g, g * z))
    return g - total * share - z * (aligned * share), total, aligned


def layer_norm(x: Value, scale: Value, bias: Value | None, epsilon: float) -> Value:
    """Return the layer normalization along the last axis, in every opset."""
    if current().opset() >= 17:
        return op.LayerNormalization(x, scale, bias, axis=-1, epsilon=epsilon)
    y = standardize(x, [x.rank - 1], epsilon)[0] * scale
    return y if bias is None else y + bias
