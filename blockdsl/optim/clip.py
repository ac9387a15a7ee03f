"""Clipping of gradients, all parameters together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blockdsl.blocks.block import Block
from blockdsl.errors import OptimizerError, check_number
from blockdsl.gradient.bodies import functions_for
from blockdsl.gradient.updates import clip_factor
from blockdsl.graph.context import current
from blockdsl.graph.op import op
from blockdsl.graph.value import Value


class ClipGradNorm(Block):
    """The gradients of all parameters, scaled so that their common norm is at most `max_norm`.

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
        """The scalar that the gradients are to be multiplied by."""
        with current().scope(type(self).__name__):
            return clip_factor(gradients, self.max_norm)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.max_norm})"
