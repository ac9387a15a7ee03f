"""A nominal checkpoint: what works on it, what does not, and how it becomes complete."""

from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, error_of, labels, mlp

artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc1.weight", "fc2.weight"],
    frozen_params=["fc1.bias", "fc2.bias"],
    loss=artifacts.LossType.CrossEntropyLoss,
    optimizer=artifacts.OptimType.SGD,
    nominal_checkpoint=True,
)
complete = Module("training_model.onnx", CheckpointState.load_checkpoint("checkpoint"))
buffer = complete.get_contiguous_parameters(False)
trainable = complete.get_contiguous_parameters(True)

state = CheckpointState.load_checkpoint("nominal_checkpoint")
parameters = state.parameters
model = Module("training_model.onnx", state, "eval_model.onnx")
optimizer = Optimizer("optimizer_model.onnx", model)
load_first = "Please load the model parameters first"
results = {
    "works": [
        len(parameters),
        "fc1.weight" in parameters,
        model.get_parameters_size(False),
        model.input_names()[:2],
        model.lazy_reset_grad(),
    ],
    "reading": error_of(lambda: parameters["fc1.weight"], "Please load the parameter states first"),
    "going through": error_of(lambda: list(parameters), "Please load the parameter states first"),
    "writing": error_of(
        lambda: parameters.__setitem__("fc1.bias", batch()), "Please load all the parameter states"
    ),
    "flat": error_of(lambda: model.get_contiguous_parameters(), load_first),
    "step": error_of(lambda: model(batch(), labels()), load_first),
    "optimizer": error_of(optimizer.step, load_first),
    "export": error_of(
        lambda: model.export_model_for_inferencing("i.onnx", ["logits"]), load_first
    ),
    "trainable alone": error_of(
        lambda: model.copy_buffer_to_parameters(trainable, True), "For nominal checkpoint state"
    ),
}
model.copy_buffer_to_parameters(buffer, trainable_only=False)
losses = []
for _ in range(3):
    losses.append(model(batch(), labels()))
    optimizer.step()
    model.lazy_reset_grad()
results["completed"] = losses
results["parameters"] = {name: parameter.data for name, parameter in parameters}
