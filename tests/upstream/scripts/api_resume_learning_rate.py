"""The learning rate that was set by hand, after loading a checkpoint."""

from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, labels, mlp

artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc1.weight"],
    loss=artifacts.LossType.CrossEntropyLoss,
    optimizer=artifacts.OptimType.AdamW,
)
state = CheckpointState.load_checkpoint("checkpoint")
model = Module("training_model.onnx", state)
optimizer = Optimizer("optimizer_model.onnx", model)
optimizer.set_learning_rate(0.25)
model(batch(), labels())
optimizer.step()
CheckpointState.save_checkpoint(state, "saved", include_optimizer_state=True)
loaded = CheckpointState.load_checkpoint("saved")
again = Optimizer("optimizer_model.onnx", Module("training_model.onnx", loaded))
results = {"set": optimizer.get_learning_rate(), "loaded": again.get_learning_rate()}
