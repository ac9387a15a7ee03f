"""Optimizers that are chains of steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import chain, islice

from blockdsl.errors import OptimizerError
from blockdsl.graph.value import Value
from blockdsl.optim.clip import ClipGradNorm
from blockdsl.optim.optimizer import AbstractOptimizer
from blockdsl.optim.steps import Slots, Step
from blockdsl.optim.update import Context, Update


class AbstractChain(AbstractOptimizer):
    """An optimizer whose update is the gradient, transformed by a chain of steps."""

    @property
    @abstractmethod
    def steps(self) -> Sequence[Step]:
        """The steps, in order."""

    @property
    def slots(self) -> tuple[str, ...]:  # type: ignore[override]
        """The slots of all steps."""
        return tuple(chain.from_iterable(step.slots for step in self.steps))

    def check(self, names: Sequence[str]) -> None:
        """Check that every step supports these parameters."""
        for step in self.steps:
            step.check(names)

    def update_parameter(
        self, parameter: Value, gradient: Value, slots: Slots, context: Context
    ) -> tuple[Value, Slots]:
        """Return the new values of a parameter and its slots."""
        update, old_slots, new_slots = Update(gradient), iter(slots), list[Value]()
        for step in self.steps:
            own = list(islice(old_slots, len(step.slots)))
            update, new = step(update, parameter, own, context)
            new_slots.extend(new)
        return update.apply(parameter, context), new_slots


class Chain(AbstractChain):
    """A chain of steps.

    Args:
        *steps: The steps. The first gets the gradient; the update that the last one returns is
            applied to the parameter.
        clip_grad: Clipping of the gradients before the first step.

    Example:
        >>> from blockdsl.optim import AddDecayedWeights, Chain, ScaleByAdam, ScaleByLearningRate
        >>> adamw = Chain(ScaleByAdam(), AddDecayedWeights(0.01), ScaleByLearningRate())
        >>> adamw.slots
        ('momentum0', 'momentum1')
    """

    def __init__(self, *steps: Step, clip_grad: ClipGradNorm | None = None) -> None:
        self._steps = steps
        self.clip_grad = clip_grad
        slots = self.slots
        for slot in slots:
            if slots.count(slot) > 1:
                raise OptimizerError(
                    f"Two steps of the chain have a slot {slot!r}: derive one of them with other "
                    f"names, as in `class Slow(Trace): slots = ('slow',)`."
                )

    @property
    def steps(self) -> Sequence[Step]:
        """The steps, in order."""
        return self._steps

    def __repr__(self) -> str:
        shown = [*map(repr, self._steps), *([f"clip_grad={self.clip_grad}"] * bool(self.clip_grad))]
        return f"Chain({', '.join(shown)})"
