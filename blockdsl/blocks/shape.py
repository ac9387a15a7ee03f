"""Blocks that rearrange, select and join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blockdsl.blocks.block import Block
from blockdsl.blocks.operator import value_of
from blockdsl.errors import OpError
from blockdsl.graph.context import current
from blockdsl.graph.op import op
from blockdsl.graph.tensor import Axes, axes_in, axis_in
from blockdsl.graph.value import Operand, Value


@dataclass(eq=False)
class Reshape(Block):
    """The same elements in another shape.

    Args:
        shape: The dimensions; -1 is worked out, 0 keeps the dimension at its place.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(Reshape((0, -1))(blockdsl.input("x", shape=("batch", 3, 5))).type)
        float32[batch, 15]
    """

    shape: Sequence[int]

    def build(self, x: str) -> Value:
        """Reshape a tensor."""
        y: Value = op.Reshape(x, list(self.shape))
        return y


@dataclass(eq=False)
class Transpose(Block):
    """The axes of a tensor in another order.

    Args:
        perm: Which axis of the input each axis of the result is; reversed by default.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(Transpose((0, 2, 1))(blockdsl.input("x", shape=("batch", 3, 5))).type)
        float32[batch, 5, 3]
    """

    perm: Sequence[int] | None = None

    def build(self, x: str) -> Value:
        """Transpose a tensor."""
        perm = None if self.perm is None else axes_in(self.perm, value_of(x).rank)
        y: Value = op.Transpose(x, perm=perm)
        return y


@dataclass(eq=False)
class Concat(Block):
    """Tensors one after the other along an axis.

    Args:
        axis: The axis.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     a, b = (blockdsl.input(name, shape=("batch", 3)) for name in "ab")
        ...     print(Concat(axis=-1)(a, b).type)
        float32[batch, 6]
    """

    axis: int = 0

    def build(self, *tensors: str) -> Value:
        """Join tensors."""
        if not tensors:
            raise OpError("Concat needs at least one tensor.")
        y: Value = op.Concat(*tensors, axis=axis_in(self.axis, value_of(tensors[0]).rank))
        return y


@dataclass(eq=False)
class Split(Block):
    """A tensor cut into parts along an axis.

    Args:
        parts: How many parts of equal size, or the size of each.
        axis: The axis.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     a, b = Split((1, 4), axis=1)(blockdsl.input("x", shape=("batch", 5)))
        ...     print(a.type, b.type)
        float32[batch, 1] float32[batch, 4]
    """

    parts: int | Sequence[int]
    axis: int = 0

    def build(self, x: str) -> tuple[Value, ...]:
        """Cut a tensor."""
        axis = axis_in(self.axis, value_of(x).rank)
        if isinstance(self.parts, int):
            count, sizes = self.parts, None
        else:
            count, sizes = len(self.parts), list(self.parts)
        # From opset 18 on the number of parts is an attribute where no sizes are given.
        number = count if sizes is None and current().opset() >= 18 else None
        made: Value | tuple[Value, ...] = op.Split(
            x, split=sizes, axis=axis, num_outputs=number, outputs=count
        )
        return made if isinstance(made, tuple) else (made,)


@dataclass(eq=False)
class Slice(Block):
    """A range along each of some axes; `x[:, 1:3]` says the same.

    Args:
        starts: Where each range begins; negative numbers count from the end.
        ends: Where each ends, exclusive.
        axes: The axes; the first ones by default.
        steps: The step along each, 1 by default; needs opset 10.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(Slice([1], [3], axes=[-1])(blockdsl.input("x", shape=("batch", 5))).type)
        float32[batch, 2]
    """

    starts: Sequence[int]
    ends: Sequence[int]
    axes: Sequence[int] | None = None
    steps: Sequence[int] | None = None

    def build(self, x: str) -> Value:
        """Cut out a part of a tensor."""
        axes = range(len(self.starts)) if self.axes is None else self.axes
        y: Value = op.Slice(
            x,
            starts=list(self.starts),
            ends=list(self.ends),
            axes=axes_in(axes, value_of(x).rank),
            steps=None if self.steps is None else list(self.steps),
        )
        return y


@dataclass(eq=False)
class Gather(Block):
    """The entries of a tensor at some indices along an axis; other axes are kept whole.

    Args:
        axis: The axis that is indexed.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     table = blockdsl.input("table", shape=(100, 8))
        ...     ids = blockdsl.input("ids", "int64", ("batch", 5))
        ...     print(Gather()(table, ids).type)
        float32[batch, 5, 8]
    """

    axis: int = 0

    def build(self, x: str, indices: Operand) -> Value:
        """Pick entries.

        Args:
            x: A tensor.
            indices: Integers, a tensor or an array.

        Returns:
            The entries: the axis is replaced by the axes of the indices.
        """
        y: Value = op.Gather(x, indices, axis=axis_in(self.axis, value_of(x).rank))
        return y


@dataclass(eq=False)
class Unsqueeze(Block):
    """A tensor with more axes of length one.

    Args:
        axes: Where they are in the result.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(Unsqueeze((0, -1))(blockdsl.input("x", shape=("batch", 3))).type)
        float32[1, batch, 3, 1]
    """

    axes: Axes

    def build(self, x: str) -> Value:
        """Add axes to a tensor."""
        count = 1 if isinstance(self.axes, int) else len(self.axes)
        y: Value = op.Unsqueeze(x, axes=axes_in(self.axes, value_of(x).rank + count))
        return y


@dataclass(eq=False)
class Squeeze(Block):
    """A tensor without some axes of length one.

    Args:
        axes: The axes; all of length one by default.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(Squeeze(-1)(blockdsl.input("x", shape=("batch", 1))).type)
        float32[batch]
    """

    axes: Axes | None = None

    def build(self, x: str) -> Value:
        """Remove axes from a tensor."""
        axes = None if self.axes is None else axes_in(self.axes, value_of(x).rank)
        y: Value = op.Squeeze(x, axes=axes)
        return y


@dataclass(eq=False)
class Flatten(Block):
    """A matrix: the axes before `axis` become its rows, the others its columns.

    Args:
        axis: The first axis that belongs to the columns.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(Flatten()(blockdsl.input("x", shape=("batch", 3, 4, 4))).type)
        float32[batch, 48]
    """

    axis: int = 1

    def build(self, x: str) -> Value:
        """Flatten a tensor."""
        rank = value_of(x).rank
        axis = rank if self.axis == rank else axis_in(self.axis, rank)
        y: Value = op.Flatten(x, axis=axis)
        return y
