"""Frozen parameters: inputs of the models, in the checkpoint, and not changed."""

import numpy as np
import onnx
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, labels, mlp, names

artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc2.weight"],
    frozen_params=["fc2.bias", "fc1.weight"],
    loss=artifacts.LossType.CrossEntropyLoss,
    optimizer=artifacts.OptimType.AdamW,
)
state = CheckpointState.load_checkpoint("checkpoint")
module = Module("training_model.onnx", state, "eval_model.onnx")
optimizer = Optimizer("optimizer_model.onnx", module)
before = {name: parameter.data.copy() for name, parameter in state.parameters}
losses = []
for _ in range(3):
    losses.append(module(batch(), labels()))
    optimizer.step()
    module.lazy_reset_grad()
training_model = onnx.load("training_model.onnx")
results = {
    "inputs": names(training_model.graph.input),
    "inside": "fc1.bias" in names(training_model.graph.initializer),
    "losses": losses,
    "changed": {
        name: not np.array_equal(before[name], parameter.data)
        for name, parameter in state.parameters
    },
    "requires_grad": {name: parameter.requires_grad for name, parameter in state.parameters},
    "no gradient": state.parameters["fc1.weight"].grad,
    "sizes": [module.get_parameters_size(True), module.get_parameters_size(False)],
}
