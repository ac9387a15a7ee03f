"""What newer opsets have an operator for, in the words of the opset that the model has.

Gradients are written in the model's own opset, and models at opset 7 train too. Where the opset has
the operator, nothing but that operator is emitted.
"""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from blockdsl.graph.control import counted
from blockdsl.graph.op import op
from blockdsl.graph.tensor import NARROW
from blockdsl.graph.value import Operand, Value, known_to_be


def where(condition: Value, x: Operand, y: Operand) -> Value:
    """`x` where a condition holds and `y` elsewhere; one of the two may be a number.

    Before opset 9 it is a product with the condition, in which an infinity that is not chosen
    leaves NaN.
    """
    like = x if isinstance(x, Value) else y
    opset = condition.graph.opset()
    if opset < 16 and isinstance(like, Value) and like.elem_type == TensorProto.BFLOAT16:
        x, y = (v.cast(TensorProto.FLOAT) if isinstance(v, Value) else v for v in (x, y))
        return op.Where(condition, x, y).cast(TensorProto.BFLOAT16)
    if opset >= 9:
        return op.Where(condition, x, y)
    chosen = condition.cast(like.elem_type)
    terms: list[Value] = []
    if not known_to_be(x, 0):
        terms.append(chosen * x)
    if not known_to_be(y, 0):
        terms.append((1 - chosen) * y)
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


def equal(x: Value, y: Operand) -> Value:
    """`x == y`, element by element: floats cannot be compared so before opset 11."""
    if not x.type.is_float or x.graph.opset() >= 11:
        return op.Equal(x, y)
    differs: Value = (x < y) | (x > y)
    return ~differs


def sign(x: Value) -> Value:
    """1, 0 or -1 (`Sign` exists from opset 9 on)."""
    if x.graph.opset() >= 9:
        return op.Sign(x)
    return (x > 0).cast(x.elem_type) - (x < 0).cast(x.elem_type)


def widened(x: Any) -> Any:
    """Cast float16 and bfloat16 to float32, in which sums over many terms are exact enough.

    None, sequences and all other types are returned as they are.
    """
    is_narrow = isinstance(x, Value) and x.graph.is_tensor(x) and x.elem_type in NARROW
    return x.cast(TensorProto.FLOAT) if is_narrow else x


def counting(count: Value) -> Value:
    """The integers 0, 1, ... below a number that is computed: an int64 vector.

    Args:
        count: An int64 scalar, or a vector of one element.
    """
    opset, scalar = count.graph.opset(), count.squeeze(*range(count.rank))
    if opset >= 11:
        return op.Range(0, scalar, 1)
    if opset < 9:
        return counted(lambda number, _: ([], [number]), [], scalar)[1][0]
    return op.NonZero(op.Expand(True, scalar.unsqueeze(0))).squeeze(0)
