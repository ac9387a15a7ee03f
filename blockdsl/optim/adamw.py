"""AdamW."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
from onnx import TensorProto, helper

from blockdsl.blocks.block import Block
from blockdsl.errors import OptimizerError
from blockdsl.functional.model_functions import FLOATS, model_function
from blockdsl.graph.context import current
from blockdsl.graph.value import Value
from blockdsl.optim.chain import AbstractChain
from blockdsl.optim.decay import AddDecayedWeights, DecayAfterUpdate
from blockdsl.optim.native import SEQUENCE_OPSET, Native, kernel_context, update_sequences
from blockdsl.optim.steps import Mode, ScaleByAdam, ScaleByLearningRate, Step


@dataclass(eq=False)
class AdamW(AbstractChain):
    """Adam with decoupled weight decay.

    The defaults and the formula are those of onnxruntime-training, which follows Hugging Face.
    PyTorch decays the weights before the update, adds `eps` after the bias correction, and has
    other defaults: `AdamW(eps=1e-8, weight_decay=0.01, mode="torch")`.

    Args:
        bias_correction: Whether to correct the moments for their start at zero.
        betas: Decay factors of the first and the second moment.
        eps: Numerical stability: added to the denominator.
        weight_decay: Decoupled weight decay, multiplied by the learning rate.
        clip_grad: Clipping of the gradients: `ClipGradNorm`, or a block from a sequence of
            gradients to a sequence.
        mode: "huggingface" or "torch".
        weight_decay_groups: Weight decay of parameters whose names match a glob; the first glob
            that matches counts.

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
            raise OptimizerError(
                f"betas must be two numbers, such as (0.9, 0.999), not {self.betas!r}."
            )
        _ = self.steps  # validates the settings

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
        """Return `AdamWOptimizer`, unless weight decays differ or PyTorch's form is uncorrected."""
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


def adamw_of(
    *,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.01,
    correct_bias: int = 1,
    adam_mode: int = 0,
) -> AdamW:
    """Return the optimizer that an `AdamWOptimizer` with these attributes implements.

    Args:
        alpha: Decay factor of the first moment; the operator holds it in float32.
        beta: Decay factor of the second moment; likewise.
        epsilon: Numerical stability: added to the denominator.
        weight_decay: Decoupled weight decay.
        correct_bias: 1 to correct the moments for their start at zero.
        adam_mode: 0 for PyTorch's formula, 1 for Hugging Face's.
    """
    return AdamW(
        bool(correct_bias),
        # 1 - alpha is computed of the rounded number, as the kernel does.
        (float(np.float32(alpha)), float(np.float32(beta))),
        epsilon,
        weight_decay,
        mode="huggingface" if adam_mode else "torch",
    )


@model_function(
    "AdamWOptimizer",
    helper.make_tensor_type_proto(TensorProto.FLOAT, [1]),
    helper.make_tensor_type_proto(TensorProto.INT64, [1]),
    FLOATS,
    since_opset=SEQUENCE_OPSET,
)
def _adamw_function(
    lr: Value,
    step: Value,
    weights: Value,
    gradients: Value,
    momentums_1: Value,
    momentums_2: Value,
    *,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.01,
    correct_bias: int = 1,
    adam_mode: int = 0,
) -> tuple[Value, ...]:
    optimizer = adamw_of(
        alpha=alpha,
        beta=beta,
        epsilon=epsilon,
        weight_decay=weight_decay,
        correct_bias=correct_bias,
        adam_mode=adam_mode,
    )
    context = kernel_context(lr.squeeze(0), step.squeeze(0))
    updated = update_sequences(optimizer, context, weights, gradients, momentums_1, momentums_2)
    return current().add_constant(np.array([True])), *updated
