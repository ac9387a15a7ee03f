"""Learning rates that follow the optimizer's step count."""

from __future__ import annotations

import math

import numpy as np

from blockdsl.api.optimizer import Optimizer, as_rate
from blockdsl.errors import StateError, is_number


class LinearLRScheduler:
    """A learning rate that rises linearly from 0, then falls linearly to 0.

    With t the optimizer's step count since `first_step`:

        t < warmup_step_count      initial_lr * t / warmup_step_count
        afterwards                 initial_lr * (total - t) / (total - warmup), at least 0

    The rate depends on the optimizer's step count and on nothing else. A checkpoint that includes
    the optimizer state holds that count, so a scheduler made with the same arguments after a resume
    goes on where it was, and has no state of its own to save.

    Note:
        onnxruntime-training 1.19.2 documents these arguments but swaps the two counts.

    Args:
        optimizer: The optimizer whose learning rate is set, now and by every `step`.
        warmup_step_count: The steps over which the rate rises; 0 begins at `initial_lr`.
        total_step_count: The step, counted with those of the warmup, at which the rate is 0 again;
            None keeps the highest rate.
        initial_lr: The highest rate.
        first_step: The step count of the optimizer at which the schedule begins.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        warmup_step_count: int,
        total_step_count: int | None,
        initial_lr: float,
        *,
        first_step: int = 0,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise StateError(
                f"A scheduler sets the rate of an Optimizer, not of a {type(optimizer).__name__}."
            )
        counts = (warmup_step_count, 0 if total_step_count is None else total_step_count)
        if not all(is_number(count) and 0 <= count < math.inf for count in counts):
            raise StateError(
                "The step counts of a scheduler must be finite numbers that are not negative: "
                f"warmup_step_count is {warmup_step_count!r}, total_step_count is "
                f"{total_step_count!r}."
            )
        if not (is_number(first_step, whole=True) and first_step >= 0):
            raise StateError(
                f"first_step must be a whole number that is not negative, got {first_step!r}."
            )
        if not is_number(initial_lr):
            raise StateError(f"A learning rate is a number, not {initial_lr!r}.")
        self._optimizer = optimizer
        self._warmup = warmup_step_count
        self._total = total_step_count
        self._first_step = first_step
        self._initial_lr = as_rate(initial_lr)
        self.step()

    def step(self) -> None:
        """Set the learning rate of the next optimizer step; call it after `Optimizer.step`."""
        self._optimizer.set_learning_rate(self.learning_rate(self._optimizer.step_count))

    def learning_rate(self, step: int) -> float:
        """The learning rate after so many optimizer steps.

        Raises:
            StateError: The count is no number, or negative.
        """
        if not (is_number(step) and step >= 0):
            raise StateError(f"A step count is a number that is not negative, not {step!r}.")
        step = max(step - self._first_step, 0)
        if step < self._warmup:
            factor = step / self._warmup
        elif self._total is None:
            factor = 1.0
        else:
            left = self._total - min(step, self._total)
            factor = left / max(1, self._total - self._warmup)
        # In 32 bits, as onnxruntime-training computes it: the same bits.
        return float(np.float32(self._initial_lr) * np.float32(factor))
