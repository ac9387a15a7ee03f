"""`data` and `grad` are views of what is trained, not copies."""

from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, labels, mlp

artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"],
    loss=artifacts.LossType.CrossEntropyLoss,
    optimizer=artifacts.OptimType.SGD,
)
state = CheckpointState.load_checkpoint("checkpoint")
model = Module("training_model.onnx", state)
optimizer = Optimizer("optimizer_model.onnx", model)
data, gradient = state.parameters["fc2.bias"].data, state.parameters["fc2.bias"].grad
start = data.copy()
first = model(batch(), labels())
optimizer.step()
followed = data.copy()
data[:] = [1.0, 0.0, -1.0]
second = model(batch(), labels())
results = {
    "start": start,
    "followed the step": followed,
    "written": state.parameters["fc2.bias"].data,
    "gradient": gradient,
    "losses": [first, second],
}
