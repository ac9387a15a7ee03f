"""The rule of Det."""

from __future__ import annotations

from functools import partial

import numpy as np
from onnx import TensorProto

from blockdsl.functional.padding import length_of, numbers_to
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.control import either
from blockdsl.graph.shapes import ones_like, typed_as
from blockdsl.graph.value import Operand, Value, known_to_be


@vjp("Det")
def det(g: Value, y: Value, x: Value) -> Value:
    """y = det(x)        dxij = g (-1)^(i+j) times the determinant of x without row i and column j

    Without an inverse, which ONNX does not have: right for singular matrices too, and meant for
    small ones.
    """
    g = g.unsqueeze(-2, -1)
    size = length_of(x, -1 if isinstance(x.shape[-1], int) else -2)
    if known_to_be(size, 1):
        return g
    if isinstance(size, int):
        known = np.array([[k for k in range(size) if k != i] for i in range(size)])
        return g * _cofactors(x, known, (-1.0) ** np.add.outer(range(size), range(size)))
    numbers = numbers_to(size, x.graph)
    rest, sign = numbers[:-1], 1 - 2 * (numbers - numbers // 2 * 2)
    others = rest + (rest >= numbers.unsqueeze(1)).cast(TensorProto.INT64)
    signs = (sign.unsqueeze(1) * sign).cast(x.elem_type)
    some = partial(_cofactors, x, others, signs)
    return g * either(op.Equal(size, 1).squeeze(0), partial(ones_like, x), some)


def _cofactors(x: Value, others: Operand, signs: Operand) -> Value:
    """The cofactors of matrices.

    Args:
        x: Square matrices.
        others: For each of their rows the numbers of all others.
        signs: The sign of every cofactor.
    """
    row, column = x.rank - 2, x.rank
    without = op.Gather(op.Gather(x, others, axis=row), others, axis=column)
    minors = without.transpose(*range(row), row, column, row + 1, column + 1)
    return typed_as(op.Det(minors) * signs, x)
