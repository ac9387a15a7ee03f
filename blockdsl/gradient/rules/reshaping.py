"""Shapes of which parts are computed when the graph runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blockdsl.graph import op
from blockdsl.graph.shapes import (
    ShapeLike,
    concat_shape,
    dims_of,
    reshape,
    reshape_exactly,
)
from blockdsl.graph.value import Value


def product_of(x: Value, axes: Sequence[int]) -> ShapeLike:
    """The product of some dimensions of a tensor, as a vector of one element."""
    dims = dims_of(x, axes)
    if isinstance(dims, np.ndarray):
        return np.prod(dims, keepdims=True, dtype=np.int64)
    return dims if len(axes) == 1 else op.ReduceProd(dims, axes=[0], keepdims=1)


def reshape_to(x: Value, *parts: ShapeLike) -> Value:
    """`x` in the shape that these vectors make together, of which one may be computed for free."""
    computed = [p for p in parts if isinstance(p, Value)]
    known = concat_shape([], *(p for p in parts if not isinstance(p, Value)))
    if len(computed) == 1 and computed[0].shape == (1,) and 0 not in known:
        return reshape(x, concat_shape(*([-1] if isinstance(p, Value) else p for p in parts)))
    shape = concat_shape(*parts)
    return reshape_exactly(x, shape) if computed else reshape(x, shape)
