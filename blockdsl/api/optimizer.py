"""The optimizer of a module."""

from __future__ import annotations

import os

import numpy as np

from blockdsl.api.module import Module
from blockdsl.backend.engines import open_optimizer
from blockdsl.backend.files import text_of
from blockdsl.errors import StateError

_LARGEST = float(np.finfo(np.float32).max)


def as_rate(given: object) -> float:
    """Return a learning rate as a float that 32 bits hold.

    Raises:
        StateError: It is no number, or too large.
    """
    try:
        rate = float(given)  # type: ignore[arg-type]
    except Exception as error:  # `__float__` may raise anything
        raise StateError(
            f"A learning rate is a number, got an object of type {type(given).__name__}."
        ) from error
    if not abs(rate) <= _LARGEST:
        raise StateError(f"A learning rate is a finite number of 32 bits, not {rate}.")
    return rate


class Optimizer:
    """Changes the parameters of a module by its accumulated gradients.

    Args:
        optimizer_uri: The optimizer model, which `generate_artifacts` writes.
        module: The module to train.
    """

    def __init__(self, optimizer_uri: str | os.PathLike[str], module: Module) -> None:
        if not isinstance(module, Module):
            raise StateError(f"An optimizer trains a Module, not a {type(module).__name__}.")
        self._state = module._state._state
        self._lock = module._state._lock
        path = text_of(optimizer_uri, "optimizer model")
        with self._lock:
            self._optimizer = open_optimizer(module._model, path)

    def step(self) -> None:
        """Take one step along the gradients. They stay: `Module.lazy_reset_grad` forgets them.

        An optimizer with `ClipGradNorm` in its native form clips them in place, as PyTorch does.
        """
        self._check("take a step")
        with self._lock:
            self._optimizer.step()

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate of the steps to come; a checkpoint keeps it.

        Args:
            learning_rate: The learning rate; runtimes hold it as a 32-bit float.
        """
        self._check("set the learning rate")
        self._optimizer.learning_rate = as_rate(learning_rate)

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
