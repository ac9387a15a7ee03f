"""AdamW."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from blockdsl.blocks.block import Block
from blockdsl.errors import OptimizerError
from blockdsl.optim.chain import AbstractChain
from blockdsl.optim.decay import AddDecayedWeights, DecayAfterUpdate
from blockdsl.optim.native import Native
from blockdsl.optim.steps import Mode, ScaleByAdam, ScaleByLearningRate, Step


@dataclass(eq=False)
class AdamW(AbstractChain):
    """Adam with a weight decay apart from the gradient.

    The defaults are those of onnxruntime-training: the formula of Hugging Face. PyTorch's differs
    in when the weights decay and in where `eps` is added, and has other defaults
    (`AdamW(eps=1e-8, weight_decay=0.01, mode="torch")`).

    Args:
        bias_correction: Whether the moments are corrected for having begun at zero.
        betas: How much of the two moments is kept from step to step.
        eps: What keeps the divisor from zero.
        weight_decay: How much of a parameter is lost per step, times the learning rate.
        clip_grad: How the gradients are clipped first: `ClipGradNorm`, or a block from a sequence
            of gradients to another.
        mode: "huggingface" or "torch".
        weight_decay_groups: Another weight decay for parameters whose names match a glob; the
            first glob that fits counts.

    Example:
        >>> from blockdsl.optim import AdamW
        >>> AdamW(weight_decay=0.01, weight_decay_groups={"*.bias": 0.0, "*norm*": 0.0}).slots
        ('momentum0', 'momentum1')

    References:
        Loshchilov and Hutter, Decoupled weight decay regularization, 2019.
    """

    bias_correction: bool = True
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.0
    clip_grad: Block | None = None
    _: KW_ONLY
    mode: Mode = "huggingface"
    weight_decay_groups: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.betas, Sequence) or len(self.betas) != 2:
            raise OptimizerError(f"betas is {self.betas!r}: it is two numbers, as (0.9, 0.999) is.")
        _ = self.steps  # they object to wrong settings

    @property
    def steps(self) -> Sequence[Step]:
        """The steps, in order."""
        scaling = ScaleByAdam(*self.betas, self.eps, self.bias_correction, self.mode)
        if self.mode == "huggingface":
            after = DecayAfterUpdate(self.weight_decay, self.weight_decay_groups)
            return scaling, ScaleByLearningRate(), after
        before = AddDecayedWeights(self.weight_decay, self.weight_decay_groups)
        return scaling, before, ScaleByLearningRate()

    def native(self, names: Sequence[str]) -> Native | None:
        """`AdamWOptimizer`, which knows one weight decay, and PyTorch's formula when corrected."""
        decay = AddDecayedWeights(self.weight_decay, self.weight_decay_groups)
        decays = {decay.of(name) for name in names}
        if len(decays) > 1 or (self.mode == "torch" and not self.bias_correction):
            return None
        return Native(
            "AdamWOptimizer",
            {
                "alpha": float(self.betas[0]),
                "beta": float(self.betas[1]),
                "epsilon": float(self.eps),
                "weight_decay": float(decays.pop()),
                "correct_bias": int(self.bias_correction),
                "adam_mode": int(self.mode == "huggingface"),
            },
        )
