"""What the tests of the training engine do over and over."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from blockdsl.api import CheckpointState, Module, Optimizer
from tests import session_models
from tests.session_models import Artifacts

BATCH = session_models.batch


def open_run(
    files: Artifacts, checkpoint: Path | None = None, engine: str = "training"
) -> tuple[CheckpointState, Module, Optimizer]:
    state = CheckpointState.load_checkpoint(checkpoint or files.checkpoint, engine=engine)
    module = Module(files.training, state, files.eval)
    return state, module, Optimizer(files.optimizer, module)


def generated_run(
    files: Path, checkpoint: Path, engine: str
) -> tuple[CheckpointState, Module, Optimizer]:
    state = CheckpointState.load_checkpoint(checkpoint, engine=engine)
    module = Module(files / "training_model.onnx", state)
    return state, module, Optimizer(files / "optimizer_model.onnx", module)


def train(module: Module, optimizer: Optimizer, steps: range) -> list[float]:
    losses = []
    for seed in steps:
        losses.append(float(module(*BATCH(seed))[0]))
        optimizer.step()
        module.lazy_reset_grad()
    return losses


def values(state: CheckpointState) -> dict[str, np.ndarray]:
    return {name: parameter.data.copy() for name, parameter in state.parameters}
