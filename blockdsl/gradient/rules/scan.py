"""Rules of running sums and products, and of sequences of numbers."""

from __future__ import annotations

from blockdsl.errors import GradientError
from blockdsl.functional.padding import Count, length_of, numbers_to
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.portable import where
from blockdsl.graph.shapes import reshape
from blockdsl.graph.value import Value


@vjp("CumSum")
def cum_sum(
    g: Value, y: Value, x: Value, axis: Value, *, exclusive: bool, reverse: bool
) -> tuple[Value, None]:
    """y = running sum of x        dx = running sum of g, from the other end"""
    return op.CumSum(g, axis, exclusive=exclusive, reverse=not reverse), None


@vjp("CumProd")
def cum_prod(
    g: Value, y: Value, x: Value, axis: Value, *, exclusive: bool, reverse: bool
) -> tuple[Value, None]:
    """y = running product of x        dxi = sum over j of gj times the other factors of yj

    Without a division: right where some x are zero, as are its own derivatives. It takes a product
    for every pair of elements along the axis.
    """
    if axis.constant is None:
        raise GradientError(f"The axis of CumProd, {str(axis)!r}, is computed: make it a constant.")
    i = int(axis.constant.reshape(())) % x.rank
    j = i + 1
    after, same = _order(length_of(x, i), x, i, reverse)
    factors = where(after, x.unsqueeze(i), 1)
    products = op.CumProd(factors, j, exclusive=exclusive, reverse=reverse)
    reached = after if exclusive else after | same
    sums = where(reached, products * g.unsqueeze(i), 0).sum(j)
    return op.CumProd(x, i, exclusive=1, reverse=reverse) * sums, None


def _order(n: Count, x: Value, axis: int, reverse: bool) -> tuple[Value, Value]:
    """Whether position j, along the axis behind, comes after position i; whether it is the same."""
    numbers = numbers_to(n, x.graph)
    behind = [1] * (x.rank - axis - 1)
    i, j = reshape(numbers, [-1, 1, *behind]), reshape(numbers, [-1, *behind])
    return (j < i if reverse else j > i), op.Equal(i, j)


@vjp("Range")
def range_(
    g: Value, y: Value, start: Value, limit: Value, delta: Value
) -> tuple[Value, None, Value]:
    """yi = start + i delta        dstart = sum of gi        ddelta = sum of i gi"""
    steps = numbers_to(length_of(y, 0), y.graph).cast(g.elem_type)
    return g.sum(), None, (g * steps).sum()
