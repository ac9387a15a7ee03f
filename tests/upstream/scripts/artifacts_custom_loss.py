"""A custom loss over two outputs, whose class does not call super().__init__()."""

import onnx
import onnxruntime.training.onnxblock as onnxblock
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, labels, names, targets, two_heads


class TwoLosses(onnxblock.Block):
    def __init__(self):
        self._near = onnxblock.loss.CrossEntropyLoss()
        self._far = onnxblock.loss.MSELoss()
        self._w1 = onnxblock.blocks.Constant(0.4)
        self._w2 = onnxblock.blocks.Constant(0.6)
        self._add = onnxblock.blocks.Add()
        self._mul = onnxblock.blocks.Mul()

    def build(self, near_name, far_name):
        return self._add(
            self._mul(self._w1(), self._near(near_name, labels_name="labels1")),
            self._mul(self._w2(), self._far(far_name, target_name="target2")),
        )


artifacts.generate_artifacts(
    two_heads(),
    requires_grad=["body.weight", "near.weight", "near.bias", "far.weight"],
    loss=TwoLosses(),
    optimizer=artifacts.OptimType.AdamW,
)
state = CheckpointState.load_checkpoint("checkpoint")
module = Module("training_model.onnx", state, "eval_model.onnx")
optimizer = Optimizer("optimizer_model.onnx", module)
optimizer.set_learning_rate(0.05)
losses = []
for _ in range(4):
    losses.append(module(batch(), labels(), targets()).ravel())
    optimizer.step()
    module.lazy_reset_grad()
results = {
    "inputs": names(onnx.load("training_model.onnx").graph.input),
    "losses": losses,
    "parameters": {name: parameter.data for name, parameter in state.parameters},
}
