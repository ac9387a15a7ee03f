"""Gradients add up until they are reset, and the reset waits for the next step."""

from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, labels, mlp

artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc1.weight", "fc2.bias"],
    loss=artifacts.LossType.CrossEntropyLoss,
    optimizer=artifacts.OptimType.SGD,
)
state = CheckpointState.load_checkpoint("checkpoint")
model = Module("training_model.onnx", state, "eval_model.onnx")
optimizer = Optimizer("optimizer_model.onnx", model)


def gradient():
    return state.parameters["fc2.bias"].grad.copy()


seen = {"before": gradient()}
model(batch(), labels())
seen["once"] = gradient()
model(batch(), labels())
model(batch(), labels())
seen["three times"] = gradient()
model.lazy_reset_grad()
seen["reset, not yet done"] = gradient()
model.eval()
model(batch(seed=9), labels(seed=9))
seen["after evaluation"] = gradient()
model.train()
model(batch(), labels())
seen["once again"] = gradient()
optimizer.step()
seen["after the step"] = gradient()
results = {**seen, "bias": state.parameters["fc2.bias"].data}
