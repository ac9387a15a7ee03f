"""additional_output_names: outputs and tensors within the model, after the loss."""

import onnx
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module

from tests.upstream.models import batch, error_of, labels, mlp, names


def generate(**settings):
    artifacts.generate_artifacts(
        mlp(),
        requires_grad=["fc1.weight", "fc2.weight"],
        frozen_params=["fc1.bias", "fc2.bias"],
        loss=artifacts.LossType.CrossEntropyLoss,
        **settings,
    )


generate(additional_output_names=["logits", "h"])
state = CheckpointState.load_checkpoint("checkpoint")
module = Module("training_model.onnx", state, "eval_model.onnx")
trained = module(batch(), labels())
evaluated = module.eval()(batch(), labels())
results = {
    "training outputs": names(onnx.load("training_model.onnx").graph.output)[1:],
    "eval outputs": names(onnx.load("eval_model.onnx").graph.output)[1:],
    "output names": module.output_names()[1:],
    "trained": list(trained),
    "evaluated": list(evaluated),
    "tuples": [isinstance(trained, tuple), isinstance(evaluated, tuple)],
    "unknown": error_of(
        lambda: generate(additional_output_names=["nothing"]),
        "The provided name nothing is not a graph value info or a graph output.",
    ),
    "a text": error_of(lambda: generate(additional_output_names="logits")),
}
