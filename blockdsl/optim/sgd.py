"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
from onnx import TensorProto, helper

from blockdsl.blocks.block import Block
from blockdsl.functional.model_functions import FLOATS, model_function
from blockdsl.graph.context import current
from blockdsl.graph.value import Value
from blockdsl.optim.chain import AbstractChain
from blockdsl.optim.decay import AddDecayedWeights
from blockdsl.optim.native import SEQUENCE_OPSET, Native, kernel_context, update_sequences
from blockdsl.optim.steps import ScaleByLearningRate, Step, Trace


@dataclass(eq=False)
class SGD(AbstractChain):
    """Stochastic gradient descent with momentum and weight decay, as in PyTorch.

    Args:
        clip_grad: Clipping of the gradients: `ClipGradNorm`, or a block from a sequence of
            gradients to a sequence.
        momentum: Decay factor of the sum of gradients; 0 for plain gradient descent.
        nesterov: Whether to use Nesterov's momentum.
        dampening: Share of each gradient but the first that is left out of the sum.
        weight_decay: L2 penalty: this multiple of a parameter is added to its gradient.
        weight_decay_groups: Weight decay of parameters whose names match a glob; the first glob
            that matches counts.

    Example:
        >>> from blockdsl.optim import SGD
        >>> SGD(momentum=0.9, nesterov=True).slots
        ('momentum0',)
    """

    clip_grad: Block | None = None
    _: KW_ONLY
    momentum: float = 0.0
    nesterov: bool = False
    dampening: float = 0.0
    weight_decay: float = 0.0
    weight_decay_groups: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _ = self.steps  # validates the settings

    @property
    def steps(self) -> Sequence[Step]:
        """The steps, in order."""
        decay = AddDecayedWeights(self.weight_decay, self.weight_decay_groups)
        trace = Trace(self.momentum, self.nesterov, self.dampening)
        if not self.momentum:
            return decay, ScaleByLearningRate()
        return decay, trace, ScaleByLearningRate()

    def native(self, names: Sequence[str]) -> Native | None:
        """Return `SGDOptimizerV2`, which has neither momentum nor weight decay."""
        decay = AddDecayedWeights(self.weight_decay, self.weight_decay_groups)
        is_plain = not self.momentum and not any(decay.of(name) for name in names)
        return Native("SGDOptimizerV2") if is_plain else None


@model_function(
    "SGDOptimizerV2",
    helper.make_tensor_type_proto(TensorProto.FLOAT, [1]),
    FLOATS,
    since_opset=SEQUENCE_OPSET,
)
def _sgd_function(lr: Value, weights: Value, gradients: Value) -> tuple[Value, ...]:
    context = kernel_context(lr.squeeze(0), current().add_constant(np.array(1)))
    updated = update_sequences(SGD(), context, weights, gradients)
    return current().add_constant(np.array([True])), *updated
