"""Tensors that stand in for others of which a training operator is given the shape alone."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from blockdsl.errors import GradientError
from blockdsl.graph import current, op
from blockdsl.graph.shapes import ShapeLike
from blockdsl.graph.tensor import TensorType
from blockdsl.graph.value import Value


def shaped(shape: Value, like: Value) -> Value:
    """The tensor that a vector is the shape of, or one that could be.

    Args:
        shape: The vector.
        like: A tensor of the element type.
    """
    producer = current().producer(shape)
    if producer is not None and producer.op_type == "Shape" and not producer.attribute:
        return current().value(producer.input[0])
    rank_of(shape)
    known = shape.constant
    return of_shape(shape if known is None else known, like)


def rank_of(shape: Value) -> int:
    """The rank of the tensors that a vector is the shape of.

    Raises:
        GradientError: It is not known.
    """
    length = shape.shape[0]
    if not isinstance(length, int):
        raise GradientError(f"The rank that the shape {str(shape)!r} is of is not known.")
    return length


def of_shape(shape: ShapeLike, like: Value) -> Value:
    """A tensor of some shape, for a rule that asks for no more of it: it falls away unread."""
    zero = numpy_helper.from_array(np.zeros(1, like.dtype))
    made: Value = op.ConstantOfShape(shape, value=zero)
    if isinstance(shape, np.ndarray):
        current().annotate(made, TensorType(like.elem_type, tuple(shape.tolist())))
    return made
