"""The rule of Det."""

from __future__ import annotations

import numpy as np

from blockdsl.errors import GradientError
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.value import Value


@vjp("Det")
def det(g: Value, y: Value, x: Value) -> Value:
    """y = det(x)        dxij = g (-1)^(i+j) times the determinant of x without row i and column j

    Without an inverse, which ONNX does not have: right for singular matrices too, and meant for
    small ones.
    """
    size = x.shape[-1] if isinstance(x.shape[-1], int) else x.shape[-2]
    if not isinstance(size, int):
        raise GradientError(
            f"The gradient of Det needs the size of the matrix, and {str(x)!r} has the type "
            f"{x.type}. Give it a value_info with its last two dimensions."
        )
    g = g.unsqueeze(-2, -1)
    if size == 1:
        return g
    others = np.array([[k for k in range(size) if k != i] for i in range(size)])
    row, column = x.rank - 2, x.rank
    without = op.Gather(op.Gather(x, others, axis=row), others, axis=column)
    minors = without.transpose(*range(row), row, column, row + 1, column + 1)
    signs = (-1.0) ** np.add.outer(range(size), range(size))
    return g * (op.Det(minors) * signs)
