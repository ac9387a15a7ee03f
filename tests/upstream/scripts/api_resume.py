"""Save with the optimizer's state, load, go on: as if nothing had happened."""

import pathlib

from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, labels, mlp

artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"],
    loss=artifacts.LossType.CrossEntropyLoss,
    optimizer=artifacts.OptimType.AdamW,
)


def load(path):
    state = CheckpointState.load_checkpoint(path)
    model = Module("training_model.onnx", state, "eval_model.onnx")
    return state, model, Optimizer("optimizer_model.onnx", model)


def train(model, optimizer, steps):
    losses = []
    for step in range(steps):
        losses.append(model(batch(seed=step), labels(seed=step)))
        optimizer.step()
        model.lazy_reset_grad()
    return losses


state, model, optimizer = load("checkpoint")
train(model, optimizer, 3)
CheckpointState.save_checkpoint(state, "with", include_optimizer_state=True)
CheckpointState.save_checkpoint(state, pathlib.Path("without"))
results = {"went on": train(model, optimizer, 3)}
for name in ("with", "without"):
    again = load(name)
    results[name] = train(*again[1:], 3)
    results[f"{name}: parameters"] = {n: p.data for n, p in again[0].parameters}
