"""A prefix, a nominal checkpoint, and files of an earlier run that are written over."""

import os
import pathlib

from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module

from tests.upstream.models import batch, labels, mlp

folder = pathlib.Path("here")
folder.mkdir()
for optimizer in (artifacts.OptimType.AdamW, artifacts.OptimType.SGD):
    artifacts.generate_artifacts(
        mlp(),
        requires_grad=["fc1.weight", "fc2.weight"],
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=optimizer,
        artifact_directory=folder,
        prefix="net_",
        nominal_checkpoint=True,
    )
state = CheckpointState.load_checkpoint(folder / "net_checkpoint")
module = Module(folder / "net_training_model.onnx", state)
results = {
    "files": sorted(os.listdir(folder)),
    "smaller": (folder / "net_nominal_checkpoint").stat().st_size
    < (folder / "net_checkpoint").stat().st_size,
    "loss": module(batch(), labels()),
}
