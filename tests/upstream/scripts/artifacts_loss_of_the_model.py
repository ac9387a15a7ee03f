"""loss=None: the model's first output is the loss."""

import onnx
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, names, targets, with_loss

artifacts.generate_artifacts(
    with_loss(), requires_grad=["fc.weight"], loss=None, optimizer=artifacts.OptimType.SGD
)
state = CheckpointState.load_checkpoint("checkpoint")
module = Module("training_model.onnx", state, "eval_model.onnx")
optimizer = Optimizer("optimizer_model.onnx", module)
optimizer.set_learning_rate(0.1)
losses, errors = [], []
for _ in range(3):
    loss, error = module(batch(), targets())
    losses.append(loss)
    errors.append(error)
    optimizer.step()
    module.lazy_reset_grad()
model = onnx.load("training_model.onnx")
results = {
    "inputs": names(model.graph.input),
    "outputs": names(model.graph.output),
    "losses": losses,
    "errors": errors,
    "weight": state.parameters["fc.weight"].data,
}
