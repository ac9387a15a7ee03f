"""Steps that optimizers are chains of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from blockdsl.errors import OptimizerError, check_number
from blockdsl.graph.portable import equal
from blockdsl.graph.value import Value
from blockdsl.optim.arithmetic import moment, squared_moment
from blockdsl.optim.update import Context, Update

Slots = Sequence[Value]
"""State of one parameter: tensors of its shape, such as moments."""

Mode = Literal["huggingface", "torch"]


class Step(ABC):
    """One step of an optimizer: a transform of the update of a parameter.

    The first step gets the gradient as the update. A step with state per parameter names it in
    `slots`: tensors of the parameter's shape, initially zero.

    Example:
        >>> import blockdsl
        >>> from blockdsl.optim import Chain, ScaleByLearningRate, Step, Update
        >>> class Sign(Step):
        ...     def __call__(self, update, parameter, slots, context):
        ...         return Update(blockdsl.op.Sign(update.as_tensor(parameter))), slots
        >>> sign_descent = Chain(Sign(), ScaleByLearningRate())
    """

    slots: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def __call__(
        self, update: Update, parameter: Value, slots: Slots, context: Context
    ) -> tuple[Update, Slots]:
        """Transform the update.

        Args:
            update: The update so far: the gradient, transformed by the previous steps.
            parameter: The parameter.
            slots: The state of this step, in the order of its `slots`.
            context: The parameter's name, the learning rate and the number of the step.

        Returns:
            The new update and the new state.
        """

    def check(self, names: Sequence[str]) -> None:
        """Check that the step supports these parameters.

        Args:
            names: The names of all parameters.

        Raises:
            BlockError: It does not.
        """
        del names  # most steps treat all parameters alike


@dataclass(frozen=True)
class ScaleByLearningRate(Step):
    """Multiply the update by the learning rate."""

    def __call__(
        self, update: Update, parameter: Value, slots: Slots, context: Context
    ) -> tuple[Update, Slots]:
        """U' = lr u."""
        return update.scaled(context.learning_rate, context), slots


@dataclass(frozen=True)
class ScaleByAdam(Step):
    """Divide the first moment by the root of the second moment.

    Args:
        beta1: Decay factor of the first moment.
        beta2: Decay factor of the second moment.
        eps: Numerical stability: added to the denominator.
        bias_correction: Whether to correct the moments for their start at zero.
        mode: Whether `eps` is added after the bias correction ("torch") or before it
            ("huggingface").

    References:
        Kingma and Ba, Adam: a method for stochastic optimization, 2015.
    """

    slots: ClassVar[tuple[str, ...]] = ("momentum0", "momentum1")

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    bias_correction: bool = True
    mode: Mode = "torch"

    def __post_init__(self) -> None:
        for name, beta in (("beta1", self.beta1), ("beta2", self.beta2)):
            check_number(OptimizerError, name, beta)
            if not 0 <= beta < 1:
                raise OptimizerError(f"{name} is {beta}: it must be at least 0 and below 1.")
        check_number(OptimizerError, "eps", self.eps)
        if not self.eps >= 0:
            raise OptimizerError(f"eps is {self.eps}: it must not be negative.")
        if self.mode not in ("huggingface", "torch"):
            raise OptimizerError(f"mode is {self.mode!r}: it is 'huggingface' or 'torch'.")

    def __call__(
        self, update: Update, parameter: Value, slots: Slots, context: Context
    ) -> tuple[Update, Slots]:
        """With bias corrections c1 and c2: u' = (m' / c1) / (sqrt(v' / c2) + eps)."""
        gradient = update.as_tensor(parameter)
        mean = moment(slots[0], gradient, self.beta1)
        square = squared_moment(slots[1], gradient, self.beta2)
        scale, eps = self._corrected(context)
        return Update(mean / (square.sqrt() + eps), scale), (mean, square)

    def _corrected(self, context: Context) -> tuple[Value | float, Value | float]:
        """Return the factor of both corrections, sqrt(c2) / c1, and eps scaled to match."""
        if not self.bias_correction:
            return 1.0, self.eps
        first = context.bias_correction(self.beta1)
        root = context.shared((self, "root"), context.bias_correction(self.beta2).sqrt)
        scale = context.shared((self, "scale"), lambda: root / first)
        return scale, self.eps if self.mode == "huggingface" else context.multiply(root, self.eps)


@dataclass(frozen=True)
class Trace(Step):
    """Accumulate updates with exponential decay: momentum.

    Args:
        momentum: Decay factor of the sum of updates.
        nesterov: Whether to use Nesterov's momentum.
        dampening: Share of each update but the first that is left out of the sum.
    """

    slots: ClassVar[tuple[str, ...]] = ("momentum0",)

    momentum: float = 0.9
    nesterov: bool = False
    dampening: float = 0.0

    def __post_init__(self) -> None:
        check_number(OptimizerError, "momentum", self.momentum)
        check_number(OptimizerError, "dampening", self.dampening)
        if not self.momentum >= 0:
            raise OptimizerError(f"momentum is {self.momentum}: it must not be negative.")
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise OptimizerError(
                "Nesterov's momentum needs a momentum above 0 and no dampening; momentum is "
                f"{self.momentum} and dampening {self.dampening}."
            )

    def __call__(
        self, update: Update, parameter: Value, slots: Slots, context: Context
    ) -> tuple[Update, Slots]:
        """B' = momentum b + (1 - dampening) u; u' = b', or u + momentum b' (Nesterov)."""
        change = update.as_tensor(parameter)
        added = change
        if self.dampening:
            # PyTorch does not dampen the first update.
            share = context.shared((self, "share"), lambda: self._share(context))
            added = share * change
        total = self.momentum * slots[0] + added
        ahead = change + self.momentum * total if self.nesterov else total
        return Update(ahead), (total,)

    def _share(self, context: Context) -> Value:
        first = equal(context.step, 1).cast(context.learning_rate.elem_type)
        return (1 - self.dampening) + self.dampening * first
