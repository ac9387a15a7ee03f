"""The training loop of the documentation: losses, gradients and parameters."""

from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, labels, mlp

artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"],
    loss=artifacts.LossType.CrossEntropyLoss,
    optimizer=artifacts.OptimType.AdamW,
)
state = CheckpointState.load_checkpoint("checkpoint")
model = Module("training_model.onnx", state, "eval_model.onnx")
optimizer = Optimizer("optimizer_model.onnx", model)
losses, gradients = [], []
for epoch in range(6):
    model.train()
    loss = model(batch(seed=epoch), labels(seed=epoch))
    losses.append(loss)
    gradients.append(state.parameters["fc1.weight"].grad.copy())
    optimizer.step()
    model.lazy_reset_grad()
results = {
    "losses": losses,
    "kind": [type(losses[0]).__name__, losses[0].shape],
    "gradients": gradients[::5],
    "parameters": {name: parameter.data for name, parameter in state.parameters},
}
