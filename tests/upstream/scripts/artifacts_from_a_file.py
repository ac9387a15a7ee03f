"""A model by its path, with its weights in a file beside it."""

import os

import onnx
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, error_of, labels, mlp

os.mkdir("model")
onnx.save(
    mlp(),
    "model/mlp.onnx",
    save_as_external_data=True,
    all_tensors_to_one_file=True,
    location="weights.bin",
    size_threshold=0,
)
os.mkdir("made")
artifacts.generate_artifacts(
    "model/mlp.onnx",
    requires_grad=["fc1.weight", "fc2.bias"],
    loss=artifacts.LossType.CrossEntropyLoss,
    optimizer=artifacts.OptimType.AdamW,
    artifact_directory="made",
)
state = CheckpointState.load_checkpoint("made/checkpoint")
module = Module("made/training_model.onnx", state, "made/eval_model.onnx")
optimizer = Optimizer("made/optimizer_model.onnx", module)
losses = []
for _ in range(3):
    losses.append(module(batch(), labels()))
    optimizer.step()
    module.lazy_reset_grad()
results = {
    "files": {name: sorted(os.listdir(name)) for name in ("model", "made")},
    "losses": losses,
    "missing": error_of(lambda: artifacts.generate_artifacts("missing.onnx", ["fc1.weight"])),
}
