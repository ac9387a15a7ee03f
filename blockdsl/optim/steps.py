"""The steps that optimizers are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from blockdsl.errors import OptimizerError, check_number
from blockdsl.gradient.updates import moment, squared_moment
from blockdsl.graph.portable import equal
from blockdsl.graph.value import Value
from blockdsl.optim.update import Context, Update

Slots = Sequence[Value]
"""What an optimizer remembers of one parameter."""

Mode = Literal["huggingface", "torch"]


class Step(ABC):
    """One step of an optimizer: it turns the change of a parameter into a better one.

    The first step gets the gradient as the change. A step that remembers something of every
    parameter names it in `slots`: tensors of the parameter's shape that are zero at first.

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
        """Change the change.

        Args:
            update: The change that the steps before made of the gradient.
            parameter: The parameter.
            slots: What this step remembers of it, in the order of its `slots`.
            context: The parameter's name, the learning rate and the number of the step.

        Returns:
            The new change and what to remember.
        """

    def check(self, names: Sequence[str]) -> None:
        """Say whether the step can work on these parameters.

        Args:
            names: The names of all parameters.

        Raises:
            BlockError: It cannot.
        """
        del names  # most steps do not ask for names


@dataclass(frozen=True)
class ScaleByLearningRate(Step):
    """The change times the learning rate."""

    def __call__(
        self, update: Update, parameter: Value, slots: Slots, context: Context
    ) -> tuple[Update, Slots]:
        """What is made of a change u: u' = lr u."""
        return update.scaled(context.learning_rate, context), slots


@dataclass(frozen=True)
class ScaleByAdam(Step):
    """The mean of the changes over the root of the mean of their squares.

    Args:
        beta1: How much of the mean is kept from step to step.
        beta2: How much of the mean of the squares is.
        eps: What keeps the divisor from zero.
        bias_correction: Whether the means are corrected for having begun at zero.
        mode: Whether `eps` is added to the corrected divisor ("torch") or to the uncorrected one
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
        scale, damping = self._numbers(context)
        return Update(mean / (square.sqrt() + damping), scale), (mean, square)

    def _numbers(self, context: Context) -> tuple[Value | float, Value | float]:
        """Both corrections as one factor, sqrt(c2) / c1, for which eps becomes sqrt(c2) eps."""
        if not self.bias_correction:
            return 1.0, self.eps
        first = context.bias_correction(self.beta1)
        root = context.once((self, "root"), context.bias_correction(self.beta2).sqrt)
        scale = context.once((self, "scale"), lambda: root / first)
        return scale, self.eps if self.mode == "huggingface" else context.product(root, self.eps)


@dataclass(frozen=True)
class Trace(Step):
    """Momentum: a sum of the changes in which older ones count less and less.

    Args:
        momentum: How much of the sum is kept from step to step.
        nesterov: Whether to look one step ahead.
        dampening: How much of each change but the first is left out of the sum.
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
        """The sum b' = momentum b + (1 - dampening) u; u' = b', or u + momentum b' (Nesterov)."""
        change = update.as_tensor(parameter)
        added = change
        if self.dampening:
            # PyTorch does not dampen the first change.
            share = context.once((self, "share"), lambda: self._share(context))
            added = share * change
        total = self.momentum * slots[0] + added
        ahead = change + self.momentum * total if self.nesterov else total
        return Update(ahead), (total,)

    def _share(self, context: Context) -> Value:
        first = equal(context.step, 1).cast(context.learning_rate.elem_type)
        return (1 - self.dampening) + self.dampening * first
