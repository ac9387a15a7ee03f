"""Rules of the softmax family."""

from __future__ import annotations

from blockdsl.gradient.registry import no_gradient, vjp
from blockdsl.graph.value import Value

no_gradient("Hardmax", reason="it is piecewise constant")


@vjp("Softmax")
def softmax(g: Value, y: Value, x: Value, *, axis: int) -> Value:
    """y = e^x / sum(e^x)        dx = y (g - sum(g y))"""
    return y * (g - (g * y).sum(_axes(x, axis), keepdims=True))


@vjp("LogSoftmax")
def log_softmax(g: Value, y: Value, x: Value, *, axis: int) -> Value:
    """y = x - log(sum(e^x))        dx = g - e^y sum(g)"""
    return g - y.exp() * g.sum(_axes(x, axis), keepdims=True)


def _axes(x: Value, axis: int) -> list[int]:
    """The axes that are normalised together: before opset 13 all from the given one on."""
    axis %= x.rank
    return [axis] if x.graph.opset() >= 13 else list(range(axis, x.rank))
