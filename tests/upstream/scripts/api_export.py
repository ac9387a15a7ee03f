"""Export for inference: which outputs, which inputs are left, and the values of today."""

import onnx
import onnxruntime
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, error_of, labels, mlp, names

artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc1.weight", "fc2.weight"],
    frozen_params=["fc2.bias"],
    loss=artifacts.LossType.CrossEntropyLoss,
    optimizer=artifacts.OptimType.SGD,
)
state = CheckpointState.load_checkpoint("checkpoint")
model = Module("training_model.onnx", state, "eval_model.onnx")
optimizer = Optimizer("optimizer_model.onnx", model)
optimizer.set_learning_rate(0.5)
model(batch(), labels())
optimizer.step()
loss_name = model.eval().output_names()[0]

results = {}
for key, outputs in {
    "logits": ["logits"],
    "intermediate first": ["h", "logits"],
    "hidden alone": ("h",),
    "with the loss": ["logits", loss_name],
}.items():
    model.export_model_for_inferencing("inference.onnx", outputs)
    session = onnxruntime.InferenceSession("inference.onnx", providers=["CPUExecutionProvider"])
    inputs = names(session.get_inputs())
    feeds = {"x": batch(), "labels": labels()}
    results[key] = {
        "inputs": inputs,
        "outputs": [name for name in names(session.get_outputs()) if name != loss_name],
        "values": session.run(None, {name: feeds[name] for name in inputs}),
        "parameters": sorted(
            n for n in names(onnx.load("inference.onnx").graph.initializer) if n.startswith("fc")
        ),
    }


def export(*outputs):
    return lambda: model.export_model_for_inferencing("inference.onnx", list(outputs))


without = Module("training_model.onnx", state)
results["unknown"] = error_of(
    export("nothing"), "Expected graph output for inference graph nothing could not be found"
)
results["nothing asked for"] = error_of(export())
results["a text"] = error_of(lambda: model.export_model_for_inferencing("inference.onnx", "logits"))
results["no evaluation model"] = error_of(
    lambda: without.export_model_for_inferencing("inference.onnx", ["logits"]),
    "Eval model was not provided. Cannot export a model for inferencing.",
)
