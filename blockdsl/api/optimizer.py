"""The optimizer of a module."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from blockdsl.backend.engines import open_optimizer
from blockdsl.backend.files import text_of
from blockdsl.errors import StateError

if TYPE_CHECKING:
    from blockdsl.api.module import Module


class Optimizer:
    """Changes the parameters of a module by its accumulated gradients.

    Args:
        optimizer_uri: The optimizer model, which `generate_artifacts` writes.
        module: The module to train.
    """

    def __init__(self, optimizer_uri: str | os.PathLike[str], module: Module) -> None:
        if not hasattr(module, "_model"):
            raise StateError(f"An optimizer trains a Module, not a {type(module).__name__}.")
        self._state = module._state._state
        self._optimizer = open_optimizer(module._model, text_of(optimizer_uri, "optimizer model"))

    def step(self) -> None:
        """Take one step along the gradients. They stay: `Module.lazy_reset_grad` forgets them.

        An optimizer with `ClipGradNorm` in its native form clips them in place, as PyTorch does.
        """
        self._check("take a step")
        self._optimizer.step()

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate of the steps to come; a checkpoint keeps it.

        Args:
            learning_rate: The learning rate; runtimes hold it as a 32-bit float.
        """
        self._check("set the learning rate")
        try:
            rate = float(learning_rate)
        except (TypeError, ValueError) as error:
            raise StateError(f"A learning rate is a number, not {learning_rate!r}.") from error
        if not math.isfinite(rate):
            raise StateError(f"A learning rate is a finite number, not {rate}.")
        self._optimizer.learning_rate = rate

    def get_learning_rate(self) -> float:
        """The learning rate of the next step."""
        self._check("get the learning rate")
        return self._optimizer.learning_rate

    @property
    def step_count(self) -> int:
        """The steps taken so far, those before the checkpoint that was resumed included."""
        self._check("count the steps")
        return self._optimizer.step_count

    def _check(self, what: str) -> None:
        if self._state.nominal:
            raise StateError(
                f"The optimizer cannot {what}: its state comes from a nominal checkpoint and has "
                "no values. Please load the model parameters first. "
                "Write `Module.copy_buffer_to_parameters(buffer, trainable_only=False)`."
            )
