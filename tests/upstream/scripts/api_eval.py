"""Training and evaluation mode, and the names in each."""

from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module

from tests.upstream.models import batch, labels, mlp

artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"],
    loss=artifacts.LossType.CrossEntropyLoss,
    additional_output_names=["logits"],
)
state = CheckpointState.load_checkpoint("checkpoint")
model = Module("training_model.onnx", state, "eval_model.onnx")
modes = [model.training]
same = [model.eval() is model, model.training, model.train() is model, model.training]
same += [model.train(False).training, model.train(True).training]
names = {}
for mode in (True, False):
    model.train(mode)
    names[f"training {mode}"] = [model.input_names()[:2], model.output_names()[1:]]
model.eval()
loss, logits = model(batch(), labels())
without = Module("training_model.onnx", state)
results = {
    "modes": modes + same,
    "names": names,
    "loss": loss,
    "logits": logits,
    "without an evaluation model": without.eval().input_names(),
}
