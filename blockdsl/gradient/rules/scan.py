"""Rules of running sums and of what counts."""

from __future__ import annotations

from blockdsl.gradient.registry import vjp
from blockdsl.gradient.rules.placing import numbers_to, length_of
from blockdsl.graph import op
from blockdsl.graph.value import Value


@vjp("CumSum")
def cum_sum(
    g: Value, y: Value, x: Value, axis: Value, *, exclusive: bool, reverse: bool
) -> tuple[Value, None]:
    """y = running sum of x        dx = running sum of g, from the other end"""
    return op.CumSum(g, axis, exclusive=exclusive, reverse=not reverse), None


@vjp("Range")
def range_(
    g: Value, y: Value, start: Value, limit: Value, delta: Value
) -> tuple[Value, None, Value]:
    """yi = start + i delta        dstart = sum of gi        ddelta = sum of i gi"""
    steps = numbers_to(length_of(y, 0), y.graph).cast(g.elem_type)
    return g.sum(), None, (g * steps).sum()
