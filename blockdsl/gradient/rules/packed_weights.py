"""The rule of products with weights of a few bits, several of them to a byte."""

from __future__ import annotations

from blockdsl.errors import GradientError
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.schema import MICROSOFT
from blockdsl.graph.shapes import reshape_like, sum_to
from blockdsl.graph.value import Value


@vjp("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(
    g: Value,
    y: Value,
    a: Value,
    b: Value,
    scales: Value,
    zero_points: Value | None,
    g_idx: Value | None,
    bias: Value | None,
    *,
    K: int,  # noqa: N803  the schema's names
    N: int,  # noqa: N803
    bits: int | None,
    block_size: int,
    weight_prepacked: int | None,
) -> tuple[Value | None, ...]:
    """y = a W^T + c, W = s (q - z)        da = g W        dc = sum(g)        ds = sum((q-z) g^T a)

    The packed numbers q are what they are; the scales s and the bias c can be trained.
    """
    if g_idx is not None or weight_prepacked:
        raise GradientError("MatMulNBits with 'g_idx' or prepacked weights has no gradient.")
    width = bits or 4
    blocks = -(-K // block_size)
    numbers = op.Reshape(_unpacked(b.cast(a.elem_type), width), [N, blocks, block_size])
    numbers = numbers - _zeros(zero_points, width, N, blocks, a)
    scale = op.Reshape(scales, [N, blocks, 1])
    weight = op.Reshape(numbers * scale, [N, blocks * block_size])[:, :K]
    dweight = op.Gemm(op.Reshape(g, [-1, N]), op.Reshape(a, [-1, K]), transA=1)
    missing = blocks * block_size - K
    padded = op.Pad(dweight, pads=[0, 0, 0, missing]) if missing else dweight
    dscale = (op.Reshape(padded, [N, blocks, block_size]) * numbers).sum(-1)
    return (
        g @ weight,
        None,
        reshape_like(dscale, scales),
        None,
        None,
        None if bias is None else sum_to(g, bias),
    )


def _zeros(points: Value | None, bits: int, rows: int, blocks: int, like: Value) -> Value | float:
    """The number that stands for 0 in each block: packed as the weights are, or floats."""
    if points is None:
        return float(2 ** (bits - 1))
    if points.type.is_float:
        return op.Reshape(points, [rows, blocks, 1])
    packed = op.Reshape(points.cast(like.elem_type), [rows, -1])
    return _unpacked(packed, bits)[:, :blocks].unsqueeze(-1)


def _unpacked(packed: Value, bits: int) -> Value:
    """The numbers that lie in bytes, the lowest bits first, along the last axis."""
    if bits == 8:
        return packed
    if 8 % bits:
        raise GradientError(f"MatMulNBits of {bits} bits has no gradient: of 2, 4 and 8 it has.")
    base, parts = 2**bits, []
    for _ in range(8 // bits):
        rest = op.Floor(packed * (1 / base))
        parts.append((packed - rest * base).unsqueeze(-1))
        packed = rest
    return op.Reshape(op.Concat(*parts, axis=-1), [0] * (packed.rank - 1) + [-1])
