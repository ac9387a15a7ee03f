"""Shapes of which parts are computed when the graph runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from blockdsl.functional.padding import Count, numbers_to
from blockdsl.graph import current, op
from blockdsl.graph.shapes import concat_shape, expand, reshape, reshape_exactly
from blockdsl.graph.value import Value


def reshape_to(x: Value, *parts: Any) -> Value:
    """`x` in the shape that these dimensions make together, of which one is worked out for free.

    Args:
        x: A tensor.
        *parts: Dimensions in order: numbers, vectors, and int64 vectors that are computed.
    """
    computed = [p for p in parts if isinstance(p, Value)]
    if len(computed) == 1 and computed[0].shape == (1,):
        shape = concat_shape(*(-1 if isinstance(p, Value) else p for p in parts))
        if 0 not in shape:
            return reshape(x, shape)
    shape = concat_shape(*parts)
    return reshape_exactly(x, shape) if computed else reshape(x, shape)


def identity(length: Count, like: Value) -> Value:
    """The identity matrix of that many rows."""
    if isinstance(length, int) and (length <= 16 or like.graph.opset() < 9):
        return current().add_constant(np.eye(length, dtype=like.dtype))
    if like.graph.opset() < 9:
        numbers = numbers_to(length, like.graph)
        return op.Equal(numbers.unsqueeze(1), numbers.unsqueeze(0)).cast(like.elem_type)
    square = expand(
        current().add_constant(np.zeros((1, 1), np.float32)), concat_shape(length, length)
    )
    return op.EyeLike(square, dtype=TensorProto.FLOAT).cast(like.elem_type)
