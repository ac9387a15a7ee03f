"""Shapes as data: constants where they are static, computed where they are not.

What is known when the graph is built costs nothing when it runs: a static shape is a constant, and
only the symbolic parts become `Shape` nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from blockdsl.graph.context import current
from blockdsl.graph.control import either
from blockdsl.graph.op import op
from blockdsl.graph.portable import counting
from blockdsl.graph.tensor import Dim, TensorType, axis_in, is_static
from blockdsl.graph.value import Value

ShapeLike = Any
"""A list of integers, an int64 array or an int64 `Value` of rank one."""


def shape_of(x: Value) -> ShapeLike:
    """The shape of a tensor: an int64 array if it is static, else a `Value`."""
    return np.array(x.shape, np.int64) if x.is_static else op.Shape(x)


def dims_of(x: Value, axes: Sequence[int]) -> ShapeLike:
    """Some dimensions of a tensor, as a vector."""
    axes = [a % x.rank for a in axes]
    dims = [x.shape[a] for a in axes]
    if is_static(dims):
        return np.array(dims, np.int64)
    return op.Gather(op.Shape(x), np.array(axes, np.int64), axis=0)


def size_of(x: Value, axes: Sequence[int] | None = None) -> Value | float:
    """The number of elements over some axes (all by default), in the type of the tensor."""
    size = _product_of_dims(x, axes)
    return size.cast(x.elem_type) if isinstance(size, Value) else float(size)


def share_of(x: Value, axes: Sequence[int] | None = None) -> Value | float:
    """One over `size_of`. A 16-bit float can hold it where it cannot hold the size itself."""
    size = _product_of_dims(x, axes)
    if not isinstance(size, Value):
        return 1 / max(1.0, float(size))
    return op.Reciprocal(size.cast(np.promote_types(x.dtype, np.float32))).cast(x.elem_type)


def _product_of_dims(x: Value, axes: Sequence[int] | None) -> Value | int:
    """The number of elements over some axes; of all, also where the rank is declared wrongly."""
    if axes is None or len(axes) == x.rank:
        return int(np.prod(np.array(x.shape, np.int64))) if x.is_static else op.Size(x)
    dims = dims_of(x, axes)
    return int(np.prod(dims)) if isinstance(dims, np.ndarray) else op.ReduceProd(dims, keepdims=0)


def positions(count: ShapeLike) -> Value:
    """The numbers 0, 1, ... below a size (a vector of one element), in int64."""
    if not isinstance(count, Value):
        return current().add_constant(np.arange(int(np.asarray(count)[0]), dtype=np.int64))
    return counting(count)


def concat_shape(*parts: ShapeLike) -> ShapeLike:
    """Shape vectors one after the other."""
    if all(not isinstance(p, Value) for p in parts):
        return np.concatenate([np.asarray(p, np.int64).reshape(-1) for p in parts])
    vectors = [p if isinstance(p, Value) else np.asarray(p, np.int64).reshape(-1) for p in parts]
    vectors = [v for v in vectors if isinstance(v, Value) or v.size]
    return vectors[0] if len(vectors) == 1 else op.Concat(*vectors, axis=0)


def reshape(x: Value, shape: ShapeLike) -> Value:
    """`x` in another shape, in which -1 is worked out; nothing is emitted if it has it already."""
    if isinstance(shape, Value):
        return op.Reshape(x, shape)
    target = tuple(int(d) for d in shape)
    if x.type.shape == target:
        return x
    return op.Reshape(x, np.array(target, np.int64))


def reshape_exactly(x: Value, shape: ShapeLike) -> Value:
    """`x` in a shape without -1, in which 0 is a length of zero and not one that stays."""
    if not isinstance(shape, Value) and 0 not in shape:
        return reshape(x, shape)
    return op.Reshape(x, shape, allowzero=1 if x.graph.opset() >= 14 else None)


def reshape_like(x: Value, like: Value) -> Value:
    """`x` in the shape of another tensor."""
    if x.type.shape is not None and x.type.shape == like.type.shape and None not in like.shape:
        return x
    unknown = [i for i, d in enumerate(like.shape) if not isinstance(d, int)]
    if len(unknown) == 1 and 0 not in like.shape:
        return typed_as(reshape(x, [d if isinstance(d, int) else -1 for d in like.shape]), like)
    return typed_as(reshape_exactly(x, shape_of(like)), like)


def expand(x: Value, shape: ShapeLike) -> Value:
    """`x` broadcast to a shape of the same or a higher rank that it does not exceed anywhere."""
    if x.graph.opset() >= 8:
        return op.Expand(x, shape)
    length = shape.shape[0]
    assert isinstance(length, int)
    x = x.unsqueeze(*range(length - x.rank))
    known = shape_of(x)
    if isinstance(known, Value):
        known = known + known.equal(0).cast(np.int64)  # an axis without elements gets no more
    return op.Tile(x, op.Div(shape, known) if isinstance(shape, Value) else shape // known)


def expand_like(x: Value, like: Value) -> Value:
    """`x` broadcast to the shape of another tensor."""
    if x.type.shape is not None and x.type.shape == like.type.shape and None not in like.shape:
        return x
    return typed_as(expand(x, shape_of(like)), like)


def typed_as(x: Value, like: Value) -> Value:
    """`x` itself, known to have the shape of another tensor."""
    shape = like.type.shape
    if shape is not None and x.type.shape != shape:
        found = x.type.shape or (None,) * len(shape)
        merged = tuple(map(_better, shape, found))
        if merged != x.type.shape:
            x.graph.annotate(x, TensorType(x.elem_type, merged))
    return x


def _better(wanted: Dim, found: Dim) -> Dim:
    """What is known of a dimension from two sides: a number says more than a name."""
    return found if isinstance(found, int) or wanted is None else wanted


def full_like(x: Value, value: float) -> Value:
    """A tensor of the shape and type of another, filled with a number."""
    array = np.array([value], x.dtype)
    if x.is_static and int(np.prod(np.array(x.shape, np.int64))) <= 64:
        shape = np.array(x.shape, np.int64)
        return current().add_constant(np.full(shape, value, x.dtype))
    if x.rank == 0:
        return current().add_constant(array.reshape(()))
    return typed_as(expand(current().add_constant(array), shape_of(x)), x)


def zeros_like(x: Value) -> Value:
    """Zeros of the shape and type of another tensor."""
    return full_like(x, 0.0)


def ones_like(x: Value) -> Value:
    """Ones of the shape and type of another tensor."""
    return full_like(x, 1.0)


def sum_to(x: Value, like: Value) -> Value:
    """Undo a broadcast: sum over the axes along which `like` was repeated to the shape of `x`.

    Where a symbolic dimension leaves open whether it was repeated, the axes are found when the
    graph runs.
    """
    wide, narrow = x.shape, like.shape
    lead = len(wide) - len(narrow)
    axes = list(range(lead))
    open_axes = []
    for i, (d, e) in enumerate(zip(wide[lead:], narrow, strict=True), start=lead):
        if e == 1 and d != 1:
            axes.append(i)
        elif (d != e and not isinstance(e, int)) or (d is None and e is None):
            open_axes.append(i)
    if not open_axes:
        if axes == list(range(lead)):
            return x.sum(axes)
        return x.sum(axes, keepdims=True).squeeze(*range(lead))
    if x.graph.opset() < 13:
        x = x.sum(axes, keepdims=True).squeeze(*range(lead))
        return typed_as(_sum_where_repeated(x, like, [i - lead for i in open_axes]), like)
    if lead:
        x = x.sum(list(range(lead)))
    target = shape_of(like)
    repeated = op.And(op.Equal(target, 1), op.Not(op.Equal(op.Shape(x), 1)))
    found = op.Squeeze(op.NonZero(repeated), axes=[0])
    return typed_as(op.ReduceSum(x, found, keepdims=1, noop_with_empty_axes=1), like)


def _sum_where_repeated(x: Value, like: Value, axes: Sequence[int]) -> Value:
    """The sum over every axis along which `like` has length one, where axes cannot be computed."""
    for axis in axes:
        length, others = dims_of(like, [axis]), range(axis + 1, x.rank)
        shape = concat_shape(dims_of(x, range(axis)), length, dims_of(x, others))
        # Both branches end in the same shape: one that says more would be taken for the result's.
        x = either(
            op.Equal(length, 1).squeeze(0),
            partial(_summed_to, x, axis, shape),
            partial(reshape_exactly, x, shape),
        )
    return x


def _summed_to(x: Value, axis: int, shape: ShapeLike) -> Value:
    return reshape_exactly(x.sum(axis, keepdims=True), shape)


def permuted(x: Value, order: Sequence[int]) -> Value:
    """The axes of `x` in another order; nothing is emitted for the order they have."""
    return x if list(order) == list(range(x.rank)) else x.transpose(*order)


def swap_last(x: Value) -> Value:
    """The last two axes of `x` exchanged."""
    order = list(range(x.rank))
    order[-2:] = order[:-3:-1]
    return permuted(x, order)


def normalised_along(name: str, x: Value, axis: int) -> Value:
    """`Softmax` or `LogSoftmax` along one axis, at every opset.

    Before opset 13 these operators flatten everything from `axis` on, which agrees with one axis
    only for the last one.
    """
    axis = axis_in(axis, x.rank)
    if x.graph.opset() >= 13 or axis == x.rank - 1:
        result: Value = getattr(op, name)(x, axis=axis)
        return result
    order = [a for a in range(x.rank) if a != axis] + [axis]
    back = [order.index(a) for a in range(x.rank)]
    return permuted(getattr(op, name)(permuted(x, order), axis=x.rank - 1), back)
