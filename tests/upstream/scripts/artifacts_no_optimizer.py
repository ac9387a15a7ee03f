"""Without an optimizer there are three files, and gradients all the same."""

import os

from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module

from tests.upstream.models import batch, mlp, targets

artifacts.generate_artifacts(
    mlp("Sigmoid"), requires_grad=["fc1.weight", "fc2.weight"], loss=artifacts.LossType.L1Loss
)
state = CheckpointState.load_checkpoint("checkpoint")
module = Module("training_model.onnx", state)
loss = module(batch(), targets())
results = {
    "files": sorted(os.listdir(".")),
    "loss": loss,
    "gradients": {name: parameter.grad for name, parameter in state.parameters},
}
