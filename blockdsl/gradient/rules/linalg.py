"""Rules of matrix products."""

from __future__ import annotations

from blockdsl.functional.padding import length_of
from blockdsl.functional.runtime_shapes import reshape_to
from blockdsl.functional.scatter_sums import count_of
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.shapes import sum_to, swap_last
from blockdsl.graph.value import Value


@vjp("MatMul")
def matmul(g: Value, y: Value, a: Value, b: Value) -> tuple[Value, Value]:
    """y = a @ b        da = g @ b^T        db = a^T @ g        (batch axes broadcast)"""
    row, column = a.rank == 1, b.rank == 1
    if column:
        g = g.unsqueeze(-1)
    if row:
        g = g.unsqueeze(-2)
    left = a.unsqueeze(0) if row else a
    right = b.unsqueeze(1) if column else b
    da = sum_to(op.MatMul(g, swap_last(right)), left)
    if left.rank > right.rank == 2:
        # One product for the whole batch: no sum, and no array of products, is left to do.
        left, g = _as_matrix(left), _as_matrix(g)
    db = sum_to(op.MatMul(swap_last(left), g), right)
    return da.squeeze(0) if row else da, db.squeeze(1) if column else db


def _as_matrix(x: Value) -> Value:
    """A batch of matrices as one of all their rows."""
    return reshape_to(x, count_of(x, range(x.rank - 1)), length_of(x, -1))


@vjp("Gemm")
def gemm_(
    g: Value,
    y: Value,
    a: Value,
    b: Value,
    c: Value | None,
    *,
    alpha: float,
    beta: float,
    transA: bool,  # noqa: N803  the schema's name
    transB: bool,  # noqa: N803
) -> tuple[Value, Value, Value | None]:
    """y = alpha a b + beta c        da = alpha g b^T        db = alpha a^T g        dc = beta g

    Here a and b are the operands after `transA` and `transB`.
    """
    if transA:
        da = op.Gemm(b, g, alpha=alpha, transA=transB, transB=1)
    else:
        da = op.Gemm(g, b, alpha=alpha, transB=1 - transB)
    if transB:
        db = op.Gemm(g, a, alpha=alpha, transA=1, transB=transA)
    else:
        db = op.Gemm(a, g, alpha=alpha, transA=1 - transA)
    if c is None:
        return da, db, None
    dc = g if beta == 1 else g * beta
    return da, db, sum_to(dc, c)
