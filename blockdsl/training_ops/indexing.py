"""Gradients of operators that read from places, and operators that join and cut."""

from __future__ import annotations

import numpy as np

from blockdsl.errors import GradientError
from blockdsl.functional.padding import length_of
from blockdsl.gradient.rules.indexing import gather, gather_elements, gather_nd, slice_
from blockdsl.graph import current, op
from blockdsl.graph.shapes import concat_shape
from blockdsl.graph.value import Value
from blockdsl.training_ops.registry import training_operator
from blockdsl.training_ops.stand_ins import shaped

_SIZES_AS_INPUT = 13
"""The opset from which on `Split` takes sizes that are computed."""


@training_operator("GatherGrad")
def gather_grad(shape: Value, indices: Value, dy: Value, *, axis: int = 0) -> Value:
    """dx = sum of dy over the places read, 0 where none was"""
    return gather(dy, dy, shaped(shape, dy), indices, axis=axis)[0]


@training_operator("GatherElementsGrad")
def gather_elements_grad(dy: Value, shape: Value, indices: Value, *, axis: int = 0) -> Value:
    """dx = sum of dy over the places read, each by itself"""
    return gather_elements(dy, dy, shaped(shape, dy), indices, axis=axis)[0]


@training_operator("GatherNDGrad")
def gather_nd_grad(shape: Value, indices: Value, dy: Value, *, batch_dims: int = 0) -> Value:
    """dx = sum of dy over the places read, 0 where none was"""
    return gather_nd(dy, dy, shaped(shape, dy), indices, batch_dims=batch_dims)[0]


@training_operator("SliceGrad")
def slice_grad(
    dy: Value,
    shape: Value,
    starts: Value,
    ends: Value,
    axes: Value | None,
    steps: Value | None,
) -> Value:
    """dx = dy at the places it was read from, 0 elsewhere"""
    dx = slice_(dy, dy, shaped(shape, dy), starts, ends, axes, steps)[0]
    assert dx is not None
    return dx


@training_operator("ShrunkenGather")
def shrunken_gather(data: Value, indices: Value, *, axis: int = 0) -> Value:
    """y = data[indices]"""
    return op.Gather(data, indices, axis=axis)


@training_operator("ConcatTraining")
def concat_training(*xs: Value, axis: int) -> tuple[Value, Value]:
    """y = x1, x2, ... along an axis        lengths = how long each is there"""
    lengths = concat_shape(*(length_of(x, axis % x.rank) for x in xs))
    if isinstance(lengths, np.ndarray):
        lengths = current().add_constant(lengths)
    return op.Concat(*xs, axis=axis), lengths


@training_operator("SplitTraining")
def split_training(x: Value, lengths: Value, *, axis: int = 0) -> tuple[Value, ...]:
    """y1, y2, ... = x, cut along an axis into parts of these lengths"""
    (count,) = lengths.shape
    if not isinstance(count, int):
        raise GradientError(
            f"Of {str(lengths)!r}, the lengths of its parts, the number is unknown."
        )
    if x.graph.opset() >= _SIZES_AS_INPUT or lengths.constant is not None:
        return op.Split(x, split=lengths, axis=axis, outputs=count)
    end = current().add_constant(np.zeros(1, np.int64))
    parts = []
    for i in range(count):
        start, end = end, end + op.Gather(lengths, [i])
        parts.append(op.Slice(x, starts=start, ends=end, axes=[axis]))
    return tuple(parts)
