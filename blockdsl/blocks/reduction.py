"""Reductions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, ClassVar

import numpy as np

from blockdsl.blocks.block import Block
from blockdsl.blocks.operator import value_of
from blockdsl.errors import OpError
from blockdsl.graph.op import op
from blockdsl.graph.tensor import Axes, axes_in
from blockdsl.graph.value import Value


@dataclass(eq=False)
class Reduction(Block):
    """A reduction over some axes of a tensor, over all by default.

    Args:
        keepdims: Keep the reduced axes, with length one.
        axes: One axis or several; None for all.
    """

    operator: ClassVar[Any]
    keepdims: bool = True
    axes: Axes | None = None

    def build(self, input_name: str) -> Value:
        """Reduce a tensor.

        Args:
            input_name: A tensor.

        Returns:
            The result.
        """
        x = value_of(input_name)
        axes = None if self.axes is None else axes_in(self.axes, x.rank)
        y: Value = self.operator(x, axes=axes, keepdims=int(self.keepdims))
        return y


class ReduceMean(Reduction):
    """`sum(x) / n` over some axes, over all by default.

    Args:
        keepdims: Keep the reduced axes, with length one.
        axes: One axis or several; None for all.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     x = blockdsl.input("x", shape=("batch", 3, 5))
        ...     print(ReduceMean()(x).type, ReduceMean(keepdims=False, axes=-1)(x).type)
        float32[1, 1, 1] float32[batch, 3]
    """

    operator = op.ReduceMean


class ReduceSum(Reduction):
    """`sum(x)` over some axes; arguments as for `ReduceMean`."""

    operator = op.ReduceSum


class ReduceMax(Reduction):
    """`max(x)` over some axes; arguments as for `ReduceMean`."""

    operator = op.ReduceMax


class ReduceMin(Reduction):
    """`min(x)` over some axes; arguments as for `ReduceMean`."""

    operator = op.ReduceMin


class ReduceAllL2(Block):
    """`sqrt(sum of the squares of all elements of all tensors)`: one number for all of them.

    It is made of `ai.onnx` operators, so it runs everywhere and has a gradient. The squares of
    16-bit floats are summed in float32, and so is the result.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     a, b = blockdsl.input("a", shape=(2, 3)), blockdsl.input("b", shape=(5,))
        ...     print(ReduceAllL2()(a, b).type)
        float32[]
    """

    def build(self, *reduce_node_input_names: str) -> Value:
        """The norm of all tensors together.

        Args:
            *reduce_node_input_names: Tensors of one floating-point type.

        Returns:
            A scalar.
        """
        if not reduce_node_input_names:
            raise OpError("ReduceAllL2 needs at least one tensor.")
        return reduce(add, map(_sum_of_squares, reduce_node_input_names)).sqrt()


def _sum_of_squares(name: str) -> Value:
    x = value_of(name)
    wide = x.cast(np.float32) if x.dtype.itemsize < 4 else x
    y: Value = op.ReduceSumSquare(wide, keepdims=0)
    return y
