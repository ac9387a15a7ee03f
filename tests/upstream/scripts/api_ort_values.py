"""OrtValues in, OrtValues out; one array among them, and arrays come out."""

import onnxruntime
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
x = onnxruntime.OrtValue.ortvalue_from_numpy(batch())
y = onnxruntime.OrtValue.ortvalue_from_numpy(labels())
losses = []
for _ in range(3):
    loss = model(x, y)
    losses.append(loss.numpy())
    optimizer.step()
    model.lazy_reset_grad()
model.eval()
evaluated = model(x, y)
results = {
    "kinds": [isinstance(value, onnxruntime.OrtValue) for value in (loss, evaluated)],
    "shape": [list(loss.shape()), loss.data_type()],
    "losses": losses,
    "evaluated": evaluated.numpy(),
    "array": model(batch(), labels()),
}
