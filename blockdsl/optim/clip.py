"""Clipping of gradients by their common norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from blockdsl.blocks.block import Block, scope
from blockdsl.errors import OptimizerError, check_number
from blockdsl.functional.model_functions import FLOATS, functions_for, model_function
from blockdsl.graph.context import current
from blockdsl.graph.control import repeat
from blockdsl.graph.op import op
from blockdsl.graph.value import Value
from blockdsl.optim.arithmetic import clip_factor, reduce_all_l2
from blockdsl.optim.native import SEQUENCE_OPSET


class ClipGradNorm(Block):
    """Scale the gradients of all parameters so that their common norm is at most `max_norm`.

    An optimizer takes it as `clip_grad`. As a block it takes a sequence of tensors and returns one.

    Args:
        max_norm: The largest norm.

    Example:
        >>> from blockdsl.optim import SGD, ClipGradNorm
        >>> SGD(clip_grad=ClipGradNorm(1.0))
        SGD(clip_grad=ClipGradNorm(1.0), momentum=0.0, nesterov=False, dampening=0.0,
            weight_decay=0.0, weight_decay_groups={})
    """

    def __init__(self, max_norm: float) -> None:
        check_number(OptimizerError, "max_norm", max_norm)
        if not max_norm > 0:
            raise OptimizerError(f"max_norm is {max_norm}: it must be above 0.")
        self.max_norm = float(max_norm)

    def build(self, gradients_name: str) -> Any:
        """Clip a sequence of gradients.

        Args:
            gradients_name: A sequence of float32 tensors.
        """
        clipped = op.microsoft.InplaceClipGradNorm(gradients_name, max_norm=self.max_norm)
        self.base.functions.extend(functions_for(self.base))
        return clipped

    def factor(self, gradients: Sequence[Value]) -> Value:
        """Return the scalar to multiply all gradients by."""
        with scope(self):
            return clip_factor(reduce_all_l2(*gradients), self.max_norm)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.max_norm})"


@model_function("InplaceClipGradNorm", FLOATS, since_opset=SEQUENCE_OPSET)
def _clip_function(gradients: Value, *, max_norm: float = 1.0, norm_type: str = "fro") -> Value:
    del norm_type  # the kernel knows the Frobenius norm alone

    def add_square(index: Value, total: list[Value]) -> list[Value]:
        gradient = op.SequenceAt(gradients, index)
        return [op.Add(total[0], op.ReduceSumSquare(gradient, keepdims=0))]

    count = op.SequenceLength(gradients)
    zero = current().add_constant(np.array(0, np.float32))
    factor = clip_factor(repeat(add_square, [zero], count)[0].sqrt(), max_norm)

    def scale(index: Value, clipped: list[Value]) -> list[Value]:
        return [op.SequenceInsert(clipped[0], op.Mul(op.SequenceAt(gradients, index), factor))]

    return repeat(scale, [op.SequenceEmpty()], count)[0]
