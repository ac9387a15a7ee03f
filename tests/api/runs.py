"""What the tests of the API do over and over."""

from __future__ import annotations

import numpy as np

from blockdsl.api import CheckpointState, Module, Optimizer
from tests.api.mlp import batch

Trained = tuple[CheckpointState, Module, Optimizer]


def values(state: CheckpointState) -> dict[str, np.ndarray]:
    return {name: parameter.data.copy() for name, parameter in state.parameters}


def flat(module: Module, trainable_only: bool = False) -> np.ndarray:
    return module.get_contiguous_parameters(trainable_only).numpy().copy()


def train(module: Module, optimizer: Optimizer, steps: int = 3, first: int = 0) -> list[float]:
    losses = []
    for step in range(first, first + steps):
        losses.append(float(module(*batch(step))[0]))
        optimizer.step()
        module.lazy_reset_grad()
    return losses
