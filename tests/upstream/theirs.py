"""What onnxruntime-training 1.19.2 itself makes of models; it imports where torch is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.forwards import STEPS, Forward

NEWEST_IR = 10
"""The newest IR version that 1.19.2 reads. It stamps optimizer models with the newest that the
installed onnx knows."""


def generate(forward: Forward, folder: Path, optimizer: Any = None) -> None:
    """Write the artifacts of a model, with its own optimizer if none is given."""
    folder.mkdir(parents=True, exist_ok=True)
    artifacts.generate_artifacts(
        forward.model,
        requires_grad=forward.trained,
        frozen_params=list(forward.frozen),
        loss=artifacts.LossType[forward.loss],
        optimizer=optimizer or artifacts.OptimType[forward.optimizer],
        artifact_directory=folder,
        prefix=forward.prefix,
        nominal_checkpoint=True,
    )
    lower_ir_version(forward.files(folder)["optimizer"])


def lower_ir_version(path: Path) -> None:
    """Make a model that it wrote one that it can load."""
    model = onnx.load(path)
    model.ir_version = min(model.ir_version, NEWEST_IR)
    onnx.save(model, path)


def train(forward: Forward, folder: Path) -> dict[str, np.ndarray]:
    """Train artifacts by its own API.

    Returns:
        The losses, every parameter at the end as `after.<name>`, and the evaluation loss then.
    """
    files = {kind: str(path) for kind, path in forward.files(folder).items()}
    state = CheckpointState.load_checkpoint(files["checkpoint"])
    module = Module(files["training"], state, files["eval"])
    optimizer = Optimizer(files["optimizer"], module)
    optimizer.set_learning_rate(forward.rate)
    losses = []
    for step in range(STEPS):
        losses.append(float(module(*forward.batch(step))))
        optimizer.step()
        module.lazy_reset_grad()
    after = {f"after.{name}": np.array(parameter.data) for name, parameter in state.parameters}
    module.eval()
    return {"losses": np.array(losses), "eval": module(*forward.batch(0)), **after}
