"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from blockdsl.blocks.block import Block
from blockdsl.optim.chain import AbstractChain
from blockdsl.optim.decay import AddDecayedWeights
from blockdsl.optim.native import Native
from blockdsl.optim.steps import ScaleByLearningRate, Step, Trace


@dataclass(eq=False)
class SGD(AbstractChain):
    """Stochastic gradient descent, with momentum and weight decay as PyTorch has them.

    Args:
        clip_grad: How the gradients are clipped first: `ClipGradNorm`, or a block from a sequence
            of gradients to another.
        momentum: How much of the sum of the gradients is kept from step to step.
        nesterov: Whether to look one step ahead.
        dampening: How much of each gradient but the first is left out of the sum.
        weight_decay: How much of a parameter is added to its gradient.
        weight_decay_groups: Another weight decay for parameters whose names match a glob; the
            first glob that fits counts.

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
        _ = self.steps  # they object to wrong settings

    @property
    def steps(self) -> Sequence[Step]:
        """The steps, in order."""
        decay = AddDecayedWeights(self.weight_decay, self.weight_decay_groups)
        trace = Trace(self.momentum, self.nesterov, self.dampening)
        if not self.momentum:
            return decay, ScaleByLearningRate()
        return decay, trace, ScaleByLearningRate()

    def native(self, names: Sequence[str]) -> Native | None:
        """`SGDOptimizerV2`, which knows neither momentum nor weight decay."""
        decay = AddDecayedWeights(self.weight_decay, self.weight_decay_groups)
        known = not self.momentum and not any(decay.of(name) for name in names)
        return Native("SGDOptimizerV2") if known else None
