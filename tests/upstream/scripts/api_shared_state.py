"""Two modules on one state, and a module on the state of another's checkpoint."""

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
first = Module("training_model.onnx", state, "eval_model.onnx", device="cpu:0")
second = Module("training_model.onnx", state, "eval_model.onnx")
optimizer = Optimizer("optimizer_model.onnx", first)
optimizer.set_learning_rate(0.5)
start = second.eval()(batch(), labels())
first(batch(), labels())
optimizer.step()
results = {"start": start, "after the step of the other": second(batch(), labels())}
CheckpointState.save_checkpoint(state, "trained")
third = Module("training_model.onnx", CheckpointState.load_checkpoint("trained"))
results["from its checkpoint"] = third(batch(), labels())
