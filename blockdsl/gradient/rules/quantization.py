"""Rules of quantization: rounding is taken for the identity (the straight-through estimator).

What saturates has no gradient, and a scale has that of learned step sizes.
"""

from __future__ import annotations

from onnx import TensorProto

from blockdsl.functional.padding import length_of, numbers_to
from blockdsl.functional.scatter_sums import add_along
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.portable import where
from blockdsl.graph.shapes import reshape_like, sum_to
from blockdsl.graph.value import Value

_LIMITS = {
    "UINT8": (0, 255),
    "INT8": (-128, 127),
    "UINT16": (0, 65535),
    "INT16": (-32768, 32767),
    "UINT4": (0, 15),
    "INT4": (-8, 7),
    "UINT2": (0, 3),
    "INT2": (-2, 1),
    "FLOAT8E4M3FN": (-448, 448),
    "FLOAT8E4M3FNUZ": (-240, 240),
    "FLOAT8E5M2": (-57344, 57344),
    "FLOAT8E5M2FNUZ": (-57344, 57344),
    "FLOAT4E2M1": (-6, 6),
}
"""The least and the greatest number of each quantized type."""


@vjp("QuantizeLinear", straight_through=True)
def quantize_linear(
    g: Value,
    y: Value,
    x: Value,
    scale: Value,
    zero_point: Value | None,
    *,
    axis: int,
    block_size: int | None,
) -> tuple[Value, Value, None]:
    """y = round(x / s) + z        dx = g / s        ds = -g x / s^2        (0 where y saturates)"""
    s = _spread(scale.cast(g.elem_type), x, axis, block_size)
    quotient = x.cast(g.elem_type) / s
    place = quotient
    if zero_point is not None:
        place = quotient + _spread(zero_point.cast(g.elem_type), x, axis, block_size)
    low, high = _LIMITS[TensorProto.DataType.Name(y.elem_type)]
    dx = where((place < low - 0.5) | (place > high + 0.5), 0, g / s)
    ds = _collected(-dx * quotient, scale, axis, block_size).cast(scale.elem_type)
    return dx.cast(x.elem_type), ds, None


@vjp("DequantizeLinear")
def dequantize_linear(
    g: Value,
    y: Value,
    x: Value,
    scale: Value,
    zero_point: Value | None,
    *,
    axis: int,
    block_size: int | None,
) -> tuple[Value, Value, None]:
    """y = (x - z) s        dx = g s        ds = g (x - z)"""
    steps = x.cast(g.elem_type)
    if zero_point is not None:
        steps = steps - _spread(zero_point.cast(g.elem_type), x, axis, block_size)
    ds = _collected(g * steps, scale, axis, block_size).cast(scale.elem_type)
    return g * _spread(scale.cast(g.elem_type), x, axis, block_size), ds, None


def _spread(setting: Value, x: Value, axis: int, block_size: int | None) -> Value:
    """A scale or zero point in a shape that broadcasts to the elements it is for."""
    if setting.rank == 0:
        return setting
    axis %= x.rank
    if block_size:
        blocks = op.Div(numbers_to(length_of(x, axis), x.graph), block_size)
        return op.Gather(setting, blocks, axis=axis)
    return setting.unsqueeze(*(a for a in range(x.rank) if a != axis))


def _collected(terms: Value, scale: Value, axis: int, block_size: int | None) -> Value:
    """The sum over the elements that a scale is for."""
    if block_size:
        axis %= terms.rank
        blocks = op.Div(numbers_to(length_of(terms, axis), terms.graph), block_size)
        return add_along(terms, blocks, length_of(scale, axis), axis)
    return reshape_like(sum_to(terms, _spread(scale, terms, axis, None)), scale)
