"""Binary cross entropy on logits, trained with SGD."""

from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, mlp, targets

artifacts.generate_artifacts(
    mlp("Tanh"),
    requires_grad=["fc1.weight", "fc2.weight"],
    frozen_params=["fc1.bias", "fc2.bias"],
    loss=artifacts.LossType.BCEWithLogitsLoss,
    optimizer=artifacts.OptimType.SGD,
)
state = CheckpointState.load_checkpoint("checkpoint")
model = Module("training_model.onnx", state, "eval_model.onnx")
optimizer = Optimizer("optimizer_model.onnx", model)
optimizer.set_learning_rate(0.5)
losses = []
for _ in range(4):
    losses.append(model(batch(), targets()).ravel())
    optimizer.step()
    model.lazy_reset_grad()
results = {
    "losses": losses,
    "parameters": {name: parameter.data for name, parameter in state.parameters},
}
