"""The transpose of gathering: sums of what was read from the same place.

`ScatterND` with reduction="add" would be the operator for this, and ONNX Runtime's CPU kernel must
not be used: its threads race for repeated indices and lose terms. `ScatterElements` adds one
element after the other there, and with atomic operations on CUDA: right on both. A few rows are
summed by a matrix product with ones and zeros: faster than either, and the same on every run.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np
from onnx import TensorProto

from blockdsl.errors import GradientError
from blockdsl.functional.padding import Count, length_of, numbers_to, padded
from blockdsl.graph import current, op
from blockdsl.graph.portable import where, widened
from blockdsl.graph.shapes import (
    ShapeLike,
    concat_shape,
    dims_of,
    expand,
    expand_like,
    reshape,
    reshape_exactly,
    reshape_like,
    shape_of,
    typed_as,
)
from blockdsl.graph.tensor import TensorType
from blockdsl.graph.value import Value

_FEW = 256
"""Up to how many rows a matrix product sums; measured with onnxruntime 1.19.2 and 1.32 on a CPU."""


def add_along(x: Value, indices: Value, count: Count, axis: int) -> Value:
    """The transpose of `Gather`: what has the same index along an axis, summed.

    Args:
        x: Terms.
        indices: For each position along the axis of `x` the one to add it to: an int64 vector.
        count: The length of that axis in the result.
        axis: The axis.

    Returns:
        The sums: `x` with this axis of the new length.
    """
    if _is_few(x, count, axis):
        rows = numbers_to(count, x.graph)
        return product_along(x, _matches(rows, nonnegative(indices, count), x), axis)
    if x.graph.opset() >= 16:
        return put_along(x, indices, count, axis, repeats=True)
    return put_along(*_without_repeats(x, nonnegative(indices, count), axis), count, axis)


def put_along(x: Value, indices: Value, count: Count, axis: int, repeats: bool = False) -> Value:
    """As `add_along`, by a scattering operator: see `scatter`."""
    others = [a for a in range(x.rank) if a != axis]
    spread = expand_like(indices.unsqueeze(*others), x)
    shape = concat_shape(dims_of(x, range(axis)), count, dims_of(x, range(axis + 1, x.rank)))
    return scatter(x, spread, shape, axis, repeats)


def add_elements(x: Value, indices: Value, like: Value, axis: int, repeats: bool = True) -> Value:
    """The transpose of `GatherElements`.

    Args:
        x: Terms.
        indices: For each of them its position along the axis: int64, of the shape of `x`.
        like: A tensor of the shape of the result.
        axis: The axis.
        repeats: Whether two terms may have the same place.
    """
    opset = x.graph.opset()
    if opset >= (16 if repeats else 9):
        return typed_as(scatter(x, indices, shape_of(like), axis, repeats), like)
    sums = where(_hits(indices, like, axis), x.unsqueeze(axis), 0).sum(axis + 1)
    others = _shorter(x, like, axis)
    missing = [length_of(like, a) - length_of(x, a) for a in others]
    return typed_as(padded(sums, others, [0] * len(others), missing), like)


def take_elements(x: Value, indices: Value, axis: int) -> Value:
    """`GatherElements`, which exists from opset 11 on."""
    if x.graph.opset() >= 11:
        return op.GatherElements(x, indices, axis=axis)
    hits = _hits(indices, x, axis)
    for other in _shorter(indices, x, axis):
        x = op.Gather(x, numbers_to(length_of(indices, other), x.graph), axis=other)
    return where(hits, x.unsqueeze(axis + 1), 0).sum(axis)


def _hits(indices: Value, like: Value, axis: int) -> Value:
    """Whether an index, along `axis + 1`, is the position along `axis`."""
    count = length_of(like, axis)
    places = reshape(numbers_to(count, like.graph), [-1, *[1] * (like.rank - axis)])
    return op.Equal(nonnegative(indices, count).unsqueeze(axis), places)


def _shorter(x: Value, like: Value, axis: int) -> list[int]:
    """The other axes along which `x` may be shorter."""
    return [a for a in range(x.rank) if a != axis and x.shape[a] != like.shape[a]]


def add_at(x: Value, positions: Value, like: Value, repeats: bool = True) -> Value:
    """Terms summed at flat positions, of which there is one for each, in the shape of `like`."""
    add = add_along if repeats else put_along
    return reshape_like(add(flat(x), flat(positions), count_of(like), 0), like)


def positions_in(x: Value) -> Value:
    """The flat position of every element: an int64 tensor of the shape of `x`."""
    return typed_as(reshape_exactly(numbers_to(count_of(x), x.graph), shape_of(x)), x)


def rows_of(x: Value, data: Value, indexed: int) -> Value:
    """What was read from the rows of a tensor, of which the first axes are indexed, as rows."""
    if indexed == data.rank:
        return flat(x)
    return reshape(x, concat_shape(-1, count_of(data, range(indexed, data.rank))))


def row_numbers(data: Value, indices: Value, batch_dims: int) -> Value:
    """The indices of `GatherND` as a vector of row numbers."""
    depth = depth_of(indices)
    numbers: Value | None = None
    for i in range(depth):
        length = length_of(data, batch_dims + i)
        index = nonnegative(op.Gather(indices, i, axis=-1), length)
        numbers = index if numbers is None else numbers * length + index
    assert numbers is not None
    if batch_dims:
        batch = range(batch_dims)
        rows_each = count_of(data, range(batch_dims, batch_dims + depth))
        first = numbers_to(count_of(data, batch), data.graph) * rows_each
        shape = concat_shape(dims_of(data, batch), [1] * (numbers.rank - batch_dims))
        numbers = numbers + reshape_exactly(first, shape)
    return flat(numbers)


def depth_of(indices: Value) -> int:
    """How many axes the indices of `GatherND` index.

    Raises:
        GradientError: It is not known.
    """
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        raise GradientError(
            f"The last dimension of {str(indices)!r} ({indices.type}), the number of axes that are "
            f"indexed, is not known. Give it a value_info with that dimension."
        )
    return depth


def flat(x: Value) -> Value:
    """All elements as a vector."""
    return x if x.rank == 1 else reshape(x, [-1])


def count_of(x: Value, axes: Iterable[int] | None = None) -> Count:
    """The number of elements over some axes, over all by default."""
    axes = range(x.rank) if axes is None else list(axes)
    known = prod(d for d in (x.shape[a] for a in axes) if isinstance(d, int))
    unknown = [a for a in axes if not isinstance(x.shape[a], int)]
    if not unknown:
        return known
    computed = dims_of(x, unknown)
    product = op.ReduceProd(computed, axes=[0]) if len(unknown) > 1 else computed
    return product if known == 1 else product * known


def scatter(x: Value, indices: Value, shape: ShapeLike, axis: int, repeats: bool) -> Value:
    """Terms at their places along an axis in a tensor of zeros.

    Repeated indices need opset 16, ones without repeats opset 9.
    """
    if not repeats:
        return write(_zeros(shape, x), indices, x, axis)
    terms = widened(x)
    return add_into(_zeros(shape, terms), indices, terms, axis).cast(x.elem_type)


def write(into: Value, indices: Value, x: Value, axis: int) -> Value:
    """`ScatterElements`, under the name that it has in the opset."""
    name = "ScatterElements" if into.graph.opset() >= 11 else "Scatter"
    result: Value = getattr(op, name)(into, indices, x, axis=axis)
    return result


def add_into(into: Value, indices: Value, x: Value, axis: int) -> Value:
    """`ScatterElements` that adds, from opset 16 on; of a type that `widened` returns."""
    result: Value = op.ScatterElements(into, indices, x, axis=axis, reduction="add")
    return result


def typed_beside(x: Value, like: Value, axis: int) -> Value:
    """`x` itself, known to be as long as another tensor along every axis but one."""
    shape = (*like.shape[:axis], x.shape[axis], *like.shape[axis + 1 :])
    if shape != x.shape:
        x.graph.annotate(x, TensorType(x.elem_type, shape))
    return x


def nonnegative(indices: Value, count: Count) -> Value:
    """Indices that count from the end as ones that count from the beginning."""
    found = indices.constant
    if found is not None and (found >= 0).all():
        return indices
    return indices + (indices < 0).cast(TensorProto.INT64) * count


def _is_few(x: Value, count: Count, axis: int) -> bool:
    """Whether a matrix product is the way to sum: where its matrix is not far larger than `x`."""
    opset, terms = x.graph.opset(), x.shape[axis]
    if opset < 9:
        return True
    if not isinstance(count, int):
        return False
    if opset < 16 and isinstance(terms, int) and count <= terms:
        return True
    widths = [d for a, d in enumerate(x.shape) if a != axis and isinstance(d, int)]
    return count <= min(_FEW, max(16, 8 * prod(widths)))


def _without_repeats(x: Value, indices: Value, axis: int) -> tuple[Value, Value]:
    """The sums of what has the same index, once for each index, and these indices."""
    same = _matches(indices, indices, x)
    number = numbers_to(length_of(indices, 0), x.graph)
    earlier = where(number.unsqueeze(0) < number.unsqueeze(1), same, 0).sum(1)
    first = op.NonZero(~(earlier > 0)).squeeze(0)
    sums = product_along(x, op.Gather(same, first, axis=0), axis)
    return sums, op.Gather(indices, first, axis=0)


def _matches(rows: Value, columns: Value, like: Value) -> Value:
    """A matrix of ones where the number of the row equals that of the column, zeros elsewhere."""
    return op.Equal(rows.unsqueeze(1), columns.unsqueeze(0)).cast(like.elem_type)


def product_along(x: Value, matrix: Value, axis: int) -> Value:
    """Every row of a matrix times the vectors that lie along an axis."""
    if axis == x.rank - 2:
        return op.MatMul(matrix, x)
    if axis == x.rank - 1:
        return op.MatMul(x, matrix.transpose())
    order = list(range(x.rank))
    order[axis], order[-1] = order[-1], order[axis]
    return op.MatMul(x.transpose(*order), matrix.transpose()).transpose(*order)


def _zeros(shape: ShapeLike, like: Value) -> Value:
    return expand(current().add_constant(np.zeros(1, like.dtype)), shape)
