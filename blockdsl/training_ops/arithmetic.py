"""Elementwise operators, and what undoes a broadcast whose axes are found when the graph runs."""

from __future__ import annotations

import numpy as np

from blockdsl.errors import GradientError
from blockdsl.gradient.engine import pull_back
from blockdsl.gradient.rules.dropout import dropout
from blockdsl.graph import current, op
from blockdsl.graph.value import Value
from blockdsl.training_ops.registry import training_operator
from blockdsl.training_ops.stand_ins import rank_of

_AXES_AS_INPUT = 13
"""The opset from which on `ReduceSum` takes axes that are computed."""


@training_operator("DivGrad")
def div_grad(dy: Value, a: Value, b: Value) -> tuple[Value, Value]:
    """da = dy / b        db = -dy (a / b) / b        (summed where they were broadcast)"""
    a, b = op.Identity(a), op.Identity(b)  # each its own, though x / x has one name twice
    da, db = pull_back(current(), {a / b: dy}, [a, b])
    return da, db


@training_operator("Scale")
def scale(x: Value, factor: Value, *, scale_down: int = 0) -> Value:
    """y = x s, or x / s"""
    factor = factor.cast(x.elem_type).squeeze(*range(factor.rank))
    return x / factor if scale_down else x * factor


@training_operator("ScaledSum")
def scaled_sum(
    a: Value,
    b: Value,
    c: Value | None,
    *,
    scale_0: float,
    scale_1: float,
    scale_2: float = 1.0,
) -> Value:
    """y = s0 a + s1 b + s2 c"""
    total = a * scale_0 + b * scale_1
    return total if c is None else total + c * scale_2


@training_operator("BatchScale")
def batch_scale(
    x: Value, *, scale_0: float, scale_1: float, scale_2: float = 1.0
) -> tuple[Value, ...]:
    """y0 = s0 x        y1 = s1 x        y2 = s2 x"""
    return x * scale_0, x * scale_1, x * scale_2


@training_operator("DropoutGrad")
def dropout_grad(dy: Value, mask: Value, ratio: Value | None, training_mode: Value | None) -> Value:
    """dx = mask dy / (1 - ratio)        (in training; else dy)"""
    return dropout((dy,), (None, mask), dy, ratio, training_mode)[0]


@training_operator("ZeroGradient")
def zero_gradient(old: Value, reset_signal: Value) -> Value:
    """y = 0, in the shape of the gradient"""
    return op.Sub(old, old)


@training_operator("FakeQuant")
def fake_quant(
    x: Value, factor: Value, zero_point: Value, *, quant_min: int = 0, quant_max: int = 255
) -> tuple[Value, Value]:
    """y = (clip(q) - z) s, q = round(x / s + z)        mask = whether q was within the limits"""
    rounded = op.Round(x / factor + zero_point)
    within = op.And(rounded >= float(quant_min), rounded <= float(quant_max))
    clipped = rounded.clip(float(quant_min), float(quant_max))
    return (clipped - zero_point) * factor, within


@training_operator("FakeQuantGrad")
def fake_quant_grad(dy: Value, mask: Value) -> Value:
    """dx = dy where nothing saturated"""
    return dy * mask.cast(dy.elem_type)


@training_operator("BroadcastGradientArgs")
def broadcast_gradient_args(a_shape: Value, b_shape: Value) -> tuple[Value, Value]:
    """The axes along which a, and b, was repeated to the shape of both, the last one first"""
    lengths = [rank_of(shape) for shape in (a_shape, b_shape)]
    rank = max(lengths)
    a, b = (
        op.Concat(np.ones(rank - n, np.int64), shape, axis=0) if n < rank else shape
        for n, shape in zip(lengths, (a_shape, b_shape), strict=True)
    )
    return _axes(a, b, rank - lengths[0]), _axes(b, a, rank - lengths[1])


def _axes(shape: Value, other: Value, lead: int) -> Value:
    """The axes along which a shape was repeated to another: the leading ones, and those of 1."""
    (rank,) = shape.shape
    assert isinstance(rank, int)
    repeated = op.Equal(shape, 1) & ~op.Equal(other, 1)
    if lead:
        repeated = op.Or(repeated, np.arange(rank) < lead)
    backwards = op.Gather(repeated, np.arange(rank)[::-1].copy(), axis=0)
    axes: Value = rank - 1 - op.Squeeze(op.NonZero(backwards), axes=[0])
    return axes


@training_operator("ReduceSumTraining")
def reduce_sum_training(
    x: Value, axes: Value, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Value:
    """y = x summed over axes that are an input in every opset"""
    if x.graph.opset() >= _AXES_AS_INPUT:
        return op.ReduceSum(x, axes, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)
    known = axes.constant
    if known is None:
        raise GradientError(
            f"The axes {str(axes)!r} are computed, which ReduceSum takes from opset "
            f"{_AXES_AS_INPUT} on, and the model has opset {x.graph.opset()}."
        )
    if not known.size and noop_with_empty_axes:
        return op.Identity(x)
    return op.ReduceSum(x, axes=known.tolist() or None, keepdims=keepdims)
