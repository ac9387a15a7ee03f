"""A plain list among the inputs."""

from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module

from tests.upstream.models import batch, error_of, labels, mlp

artifacts.generate_artifacts(
    mlp(), requires_grad=["fc1.weight"], loss=artifacts.LossType.CrossEntropyLoss
)
model = Module("training_model.onnx", CheckpointState.load_checkpoint("checkpoint"))
results = {
    "lists": error_of(lambda: model(batch().tolist(), labels().tolist())),
    "a session's words": error_of(lambda: model({"x": batch(), "labels": labels()})),
}
