"""The rule of Einsum: the gradient of a sum of products is a sum of products.

In an equation each operand is a list of subscripts, of which "..." stands for any number of axes
that broadcast.
"""

from __future__ import annotations

import operator
import string
from collections import Counter
from collections.abc import Sequence
from functools import reduce

import numpy as np

from blockdsl.functional.padding import length_of
from blockdsl.functional.runtime_shapes import identity
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.shapes import concat_shape, expand, permuted, sum_to
from blockdsl.graph.value import Value

Subscripts = list[str]

ELLIPSIS = "..."


@vjp("Einsum")
def einsum(g: Value, y: Value, *xs: Value, equation: str) -> tuple[Value, ...]:
    """y = sum of products of x1, x2, ..        dxi = the same sum, with g in the place of xi"""
    terms, result = parse(equation)
    return tuple(
        _cotangent(
            xs[i], terms[i], [g, *xs[:i], *xs[i + 1 :]], [result, *terms[:i], *terms[i + 1 :]]
        )
        for i in range(len(xs))
    )


def parse(equation: str) -> tuple[list[Subscripts], Subscripts]:
    """The subscripts of the operands and of the result.

    Example:
        >>> parse("...ij, jk")
        ([['...', 'i', 'j'], ['j', 'k']], ['...', 'i', 'k'])
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = [_subscripts(term) for term in left.split(",")]
    if arrow:
        return terms, _subscripts(right)
    counts = Counter(letter for term in terms for letter in term)
    ellipsis = [ELLIPSIS] if counts.pop(ELLIPSIS, 0) else []
    return terms, ellipsis + sorted(letter for letter, count in counts.items() if count == 1)


def _subscripts(term: str) -> Subscripts:
    before, ellipsis, after = term.partition(ELLIPSIS)
    return [*before, *([ELLIPSIS] if ellipsis else []), *after]


def _cotangent(
    x: Value, wanted: Subscripts, factors: list[Value], terms: list[Subscripts]
) -> Value:
    """The sum of products of these factors, in the subscripts and the shape of an operand."""
    wanted = _without_repeats(x, wanted, factors, terms)
    present = _present(factors, terms)
    letters = [s for s in wanted if s != ELLIPSIS]
    target = [ELLIPSIS] * (ELLIPSIS in present) + [s for s in letters if s in present]
    dx = _sum_of_products(factors, terms, target)
    # The axes of the ellipsis come first here; those that only x has are missing.
    count = x.rank - len(letters)
    missing = [*range(count if ELLIPSIS not in present else 0)]
    missing += [count + i for i, s in enumerate(letters) if s not in present]
    first = wanted.index(ELLIPSIS) if ELLIPSIS in wanted else 0
    order = [*range(first, first + count), *range(first), *range(first + count, x.rank)]
    like = permuted(x, order)
    if missing:
        lengths = [length_of(like, a) if a in missing else 1 for a in range(x.rank)]
        dx = expand(dx.unsqueeze(*(a - x.rank for a in missing)), concat_shape(*lengths))
    return permuted(sum_to(dx, like), np.argsort(order).tolist())


def _present(factors: Sequence[Value], terms: Sequence[Subscripts]) -> set[str]:
    """The subscripts that the factors have, except for axes of length one, which broadcast."""
    return {
        subscript
        for factor, term in zip(factors, terms, strict=True)
        for i, subscript in enumerate(term)
        if subscript == ELLIPSIS or factor.shape[_axis_of(factor, term, i)] != 1
    }


def _axis_of(x: Value, term: Subscripts, i: int) -> int:
    """The axis that a subscript names."""
    return i + x.rank - len(term) if ELLIPSIS in term[:i] else i


def _without_repeats(
    x: Value, wanted: Subscripts, factors: list[Value], terms: list[Subscripts]
) -> Subscripts:
    """Another letter for each repeated one, and an identity matrix that makes the two equal."""
    used = {letter for term in [wanted, *terms] for letter in term}
    free = (letter for letter in string.ascii_letters if letter not in used)
    distinct: Subscripts = []
    for i, letter in enumerate(wanted):
        if letter not in distinct:
            distinct.append(letter)
            continue
        distinct.append(next(free))
        terms.append([letter, distinct[-1]])
        factors.append(identity(length_of(x, _axis_of(x, wanted, i)), x))
    return distinct


def _sum_of_products(
    factors: Sequence[Value], terms: Sequence[Subscripts], target: Subscripts
) -> Value:
    # A scalar has no subscripts, which not every runtime accepts.
    scalars = [f for f, term in zip(factors, terms, strict=True) if not term]
    others = [(f, term) for f, term in zip(factors, terms, strict=True) if term]
    equation = ",".join("".join(term) for _, term in others) + "->" + "".join(target)
    if not others:
        return reduce(operator.mul, scalars)
    product = others[0][0]
    if len(others) > 1 or others[0][1] != target:
        product = op.Einsum(*(factor for factor, _ in others), equation=equation)
    return reduce(operator.mul, scalars, product)
