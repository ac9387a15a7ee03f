"""Weight decay, with separate rates for groups of parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from blockdsl.errors import OptimizerError, UnknownNameError, check_number, near
from blockdsl.graph.value import Value
from blockdsl.optim.steps import Slots, Step
from blockdsl.optim.update import Context, Update


@dataclass(frozen=True)
class AbstractDecay(Step):
    """A step that decays parameters towards zero.

    Args:
        rate: Weight decay of parameters that match no group.
        groups: Weight decay by globs of names; the first glob that matches counts.

    Example:
        >>> decay = AddDecayedWeights(0.01, {"*.bias": 0.0})
        >>> decay.of("fc1.weight"), decay.of("fc1.bias")
        (0.01, 0.0)
    """

    rate: float
    groups: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.groups, Mapping):
            raise OptimizerError(
                f"The weight decay groups are {self.groups!r}: they are a dictionary from globs of "
                f"names to numbers, such as {{'*.bias': 0.0}}."
            )
        for where, rate in (("", self.rate), *((f" of {g!r}", r) for g, r in self.groups.items())):
            check_number(OptimizerError, f"The weight decay{where}", rate)
            if not rate >= 0:
                raise OptimizerError(f"The weight decay{where} is {rate}: it must not be negative.")

    def of(self, name: str) -> float:
        """Return the weight decay of a parameter."""
        matching = (rate for glob, rate in self.groups.items() if fnmatchcase(name, glob))
        return next(matching, self.rate)

    def check(self, names: Sequence[str]) -> None:
        """Check that every group has members.

        Raises:
            UnknownNameError: No parameter matches a glob.
        """
        for glob in self.groups:
            if not any(fnmatchcase(name, glob) for name in names):
                raise UnknownNameError(
                    f"The weight decay group {glob!r} matches none of the trained parameters. "
                    f"{near(glob.strip('*'), names)}"
                )


@dataclass(frozen=True)
class AddDecayedWeights(AbstractDecay):
    """Add a multiple of the parameter to the update.

    Before a step with state, the decay is an L2 penalty (PyTorch's SGD); right before the learning
    rate, it is decoupled (PyTorch's AdamW).
    """

    def __call__(
        self, update: Update, parameter: Value, slots: Slots, context: Context
    ) -> tuple[Update, Slots]:
        """U' = u + rate w."""
        rate = self.of(context.name)
        return (replace(update, decay=update.decay + rate) if rate else update), slots


@dataclass(frozen=True)
class DecayAfterUpdate(AbstractDecay):
    """Decay the updated parameter, as Hugging Face's AdamW does."""

    def __call__(
        self, update: Update, parameter: Value, slots: Slots, context: Context
    ) -> tuple[Update, Slots]:
        """W' = (1 - lr rate) (w - u)."""
        decay = context.multiply(context.learning_rate, self.of(context.name))
        scale = context.multiply(update.scale, context.one_minus(decay))
        return Update(update.direction, scale, context.combine_decays(update.decay, decay)), slots
