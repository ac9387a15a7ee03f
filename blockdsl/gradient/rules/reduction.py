"""Rules of reductions."""

from __future__ import annotations

from blockdsl.gradient.registry import vjp
from blockdsl.graph.shapes import expand_like, size_of
from blockdsl.graph.value import Value


@vjp("ReduceSum")
def reduce_sum(
    g: Value,
    y: Value,
    x: Value,
    axes: Value | None,
    *,
    keepdims: bool,
    noop_with_empty_axes: bool,
) -> tuple[Value, None]:
    """y = sum(x)        dx = g, repeated along the axes"""
    return expand_like(g, x), None
