"""A small CNN under SGD."""

import numpy as np
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import cnn, labels

artifacts.generate_artifacts(
    cnn(),
    requires_grad=["conv.weight", "conv.bias", "fc.weight", "fc.bias"],
    loss=artifacts.LossType.CrossEntropyLoss,
    optimizer=artifacts.OptimType.SGD,
)
state = CheckpointState.load_checkpoint("checkpoint")
model = Module("training_model.onnx", state, "eval_model.onnx")
optimizer = Optimizer("optimizer_model.onnx", model)
optimizer.set_learning_rate(0.1)
image = np.random.default_rng(0).normal(size=(6, 1, 6, 6)).astype(np.float32)
losses = []
for _ in range(4):
    losses.append(model(image, labels()))
    optimizer.step()
    model.lazy_reset_grad()
results = {
    "losses": losses,
    "parameters": {name: parameter.data for name, parameter in state.parameters},
}
