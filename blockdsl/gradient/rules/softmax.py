"""Rules of the softmax family."""

from __future__ import annotations

from blockdsl.gradient.registry import no_gradient, vjp
from blockdsl.graph import op
from blockdsl.graph.value import Value

no_gradient("Hardmax", reason="it is piecewise constant")


@vjp("Softmax")
def softmax(g: Value, y: Value, x: Value, *, axis: int, replaced: bool) -> Value:
    """y = e^x / sum(e^x)        dx = y (g - sum(g y))"""
    share = _guarded(y, replaced)
    return share * (g - (g * share).sum(_axes(x, axis), keepdims=True))


@vjp("LogSoftmax")
def log_softmax(g: Value, y: Value, x: Value, *, axis: int, replaced: bool) -> Value:
    """y = x - log(sum(e^x))        dx = g - e^y sum(g)"""
    return g - _guarded(y.exp(), replaced) * g.sum(_axes(x, axis), keepdims=True)


def _guarded(share: Value, replaced: bool) -> Value:
    """The softmax, 0 where it is NaN if the model puts something else there.

    A row that is masked as a whole is NaN. Attention replaces it, so no gradient flows back into
    it, and none must come out: 0 times NaN would be one.
    """
    return op.Where(op.IsNaN(share), 0, share) if replaced else share


def _axes(x: Value, axis: int) -> list[int]:
    """The axes that are normalised together: before opset 13 all from the given one on."""
    axis %= x.rank
    return [axis] if x.graph.opset() >= 13 else list(range(axis, x.rank))
