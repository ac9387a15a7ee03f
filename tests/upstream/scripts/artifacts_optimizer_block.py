"""Optimizers as blocks, with settings of their own."""

import onnxruntime.training.onnxblock as onnxblock
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, labels, mlp

OPTIMIZERS = {
    "weight decay": onnxblock.optim.AdamW(weight_decay=0.2),
    "betas": onnxblock.optim.AdamW(betas=(0.5, 0.75), eps=1e-3),
    "no bias correction": onnxblock.optim.AdamW(bias_correction=False),
    "clipped AdamW": onnxblock.optim.AdamW(clip_grad=onnxblock.optim.ClipGradNorm(0.05)),
    "clipped SGD": onnxblock.optim.SGD(clip_grad=onnxblock.optim.ClipGradNorm(0.05)),
}
results = {}
for name, block in OPTIMIZERS.items():
    artifacts.generate_artifacts(
        mlp(),
        requires_grad=["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"],
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=block,
    )
    state = CheckpointState.load_checkpoint("checkpoint")
    module = Module("training_model.onnx", state)
    optimizer = Optimizer("optimizer_model.onnx", module)
    optimizer.set_learning_rate(0.1)
    losses = []
    for _ in range(4):
        losses.append(module(batch(), labels()))
        optimizer.step()
        module.lazy_reset_grad()
    results[name] = {"losses": losses, "fc2.weight": state.parameters["fc2.weight"].data}
