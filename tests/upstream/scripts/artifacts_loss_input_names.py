"""loss_input_names: the loss sees one of two outputs."""

import onnx
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module

from tests.upstream.models import batch, error_of, names, targets, two_heads


def generate(*loss_inputs):
    artifacts.generate_artifacts(
        two_heads(),
        requires_grad=["body.weight", "near.weight"],
        loss=artifacts.LossType.MSELoss,
        loss_input_names=list(loss_inputs),
    )


results = {}
for name in ("near", "far"):
    generate(name)
    state = CheckpointState.load_checkpoint("checkpoint")
    module = Module("training_model.onnx", state, "eval_model.onnx")
    results[name] = {
        "inputs": names(onnx.load("training_model.onnx").graph.input),
        "loss": module(batch(), targets()),
        "gradient": state.parameters["body.weight"].grad,
    }
results["unknown"] = error_of(lambda: generate("nothing"))
