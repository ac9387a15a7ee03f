"""Session options of one's own, and a path object for every file."""

import pathlib

import onnxruntime
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, labels, mlp

folder = pathlib.Path("made")
folder.mkdir()
artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc1.weight", "fc2.bias"],
    loss=artifacts.LossType.CrossEntropyLoss,
    optimizer=artifacts.OptimType.AdamW,
    artifact_directory=folder,
)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
state = CheckpointState.load_checkpoint(folder / "checkpoint")
model = Module(
    folder / "training_model.onnx",
    state,
    folder / "eval_model.onnx",
    device="cpu",
    session_options=options,
)
optimizer = Optimizer(folder / "optimizer_model.onnx", model)
losses = []
for _ in range(3):
    losses.append(model(batch(), labels()))
    optimizer.step()
    model.lazy_reset_grad()
results = {"losses": losses, "bias": state.parameters["fc2.bias"].data}
