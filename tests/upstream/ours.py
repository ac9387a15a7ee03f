"""What blockdsl makes of the same models, and the recorded runs of onnxruntime-training."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from blockdsl import artifacts
from blockdsl.api import CheckpointState, Module, Optimizer
from tests.upstream.forwards import Forward

DATA = Path(__file__).parents[1] / "data" / "upstream"


def generate(forward, folder):
    """Artifacts by blockdsl, with the settings of those by onnxruntime-training."""
    artifacts.generate_artifacts(
        forward.training_form,
        requires_grad=forward.trained,
        frozen_params=list(forward.frozen),
        loss=artifacts.LossType[forward.loss],
        optimizer=artifacts.OptimType[forward.optimizer],
        artifact_directory=folder,
        prefix=forward.prefix,
    )


def golden(forward: Forward) -> dict[str, np.ndarray]:
    with np.load(DATA / forward.name / "run.npz") as file:
        return dict(file)


def opened(forward, engine, checkpoint="checkpoint", folder=DATA):
    files = forward.files(folder / forward.name)
    state = CheckpointState.load_checkpoint(files[checkpoint], engine=engine)
    module = Module(files["training"], state, files["eval"])
    optimizer = Optimizer(files["optimizer"], module)
    return state, module, optimizer


def train(forward, module, optimizer, steps):
    losses = []
    for step in steps:
        losses.append(float(module(*forward.batch(step))))
        optimizer.step()
        module.lazy_reset_grad()
    return losses
