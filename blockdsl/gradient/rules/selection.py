"""Rules of operators that choose among elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blockdsl.functional.padding import length_of
from blockdsl.functional.scatter_sums import add_elements, count_of, put_along, typed_beside
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.portable import where
from blockdsl.graph.shapes import reshape_like, typed_as
from blockdsl.graph.value import Value


@vjp("Where", broadcast=True)
def where_(g: Value, y: Value, condition: Value, a: Value, b: Value) -> tuple[None, Value, Value]:
    """y = a where the condition holds, else b        da = g there        db = g elsewhere"""
    return None, where(condition, g, 0), where(condition, 0, g)


@vjp("TopK")
def top_k(
    g: Sequence[Value], y: Sequence[Value], x: Value, k: Value, *, axis: int
) -> tuple[Value, None]:
    """y = the k largest elements        dx = g at their places, 0 elsewhere"""
    return add_elements(g[0], y[1], x, axis % x.rank, repeats=False), None


@vjp("Compress")
def compress(
    g: Value, y: Value, x: Value, condition: Value, *, axis: int | None
) -> tuple[Value, None]:
    """y = elements for which the condition holds        dx = g at their places, 0 elsewhere"""
    return _put_back(g, x, op.NonZero(condition).squeeze(0), axis), None


@vjp("Unique")
def unique(g: Sequence[Value], y: Sequence[Value], x: Value, *, axis: int | None) -> Value:
    """y = x without repeats        dx = g where each is read first, 0 elsewhere"""
    return _put_back(g[0], x, y[1], axis)


def _put_back(g: Value, x: Value, places: Value, axis: int | None) -> Value:
    """What was read from places along an axis, or in all of `x`, put there again."""
    if axis is None:
        return reshape_like(put_along(g, places, count_of(x), 0), x)
    axis %= x.rank
    g = typed_beside(g, x, axis)
    return typed_as(put_along(g, places, length_of(x, axis), axis), x)


@vjp("OneHot")
def one_hot(
    g: Value, y: Value, indices: Value, depth: Value, values: Value, *, axis: int
) -> tuple[None, None, Value]:
    """y = v1 where hot, else v0        dv1 = sum of g where hot        dv0 = sum of g elsewhere"""
    hot = op.OneHot(indices, depth, np.array([0, 1], g.dtype), axis=axis)
    sums = [(g * (1 - hot)).sum(), (g * hot).sum()]
    return None, None, op.Concat(*(s.unsqueeze(0) for s in sums), axis=0)
