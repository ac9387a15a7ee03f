"""An optimizer step before any training step: the gradients are zero."""

from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, labels, mlp

artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc1.weight", "fc2.bias"],
    loss=artifacts.LossType.CrossEntropyLoss,
    optimizer=artifacts.OptimType.AdamW,
)
state = CheckpointState.load_checkpoint("checkpoint")
model = Module("training_model.onnx", state)
optimizer = Optimizer("optimizer_model.onnx", model)
before = state.parameters["fc2.bias"].data.copy()
optimizer.step()
after = state.parameters["fc2.bias"].data.copy()
loss = model(batch(), labels())
optimizer.step()
results = {
    "unchanged": (before == after).tolist(),
    "loss": loss,
    "bias": state.parameters["fc2.bias"].data,
}
