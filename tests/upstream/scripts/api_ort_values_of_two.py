"""Several outputs as OrtValues."""

import onnxruntime
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module

from tests.upstream.models import batch, mlp, targets

artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc1.weight", "fc2.weight"],
    loss=artifacts.LossType.MSELoss,
    additional_output_names=["logits", "h"],
)
state = CheckpointState.load_checkpoint("checkpoint")
model = Module("training_model.onnx", state, "eval_model.onnx")
inputs = [onnxruntime.OrtValue.ortvalue_from_numpy(a) for a in (batch(), targets())]
trained = model(*inputs)
evaluated = model.eval()(*inputs)
results = {
    "tuples": [isinstance(trained, tuple), isinstance(evaluated, tuple)],
    "kinds": [isinstance(value, onnxruntime.OrtValue) for value in trained],
    "trained": [value.numpy() for value in trained],
    "evaluated": [value.numpy() for value in evaluated],
}
