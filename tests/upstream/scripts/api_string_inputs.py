"""Words as inputs of a model that is built from blocks and trained."""

import numpy as np
import onnx
import onnxruntime.training.onnxblock as onnxblock
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import error_of, targets


class Net(onnxblock.ForwardBlock):
    def __init__(self):
        super().__init__()
        self.cast = onnxblock.blocks.Cast(to=onnx.TensorProto.FLOAT)
        self.linear = onnxblock.blocks.Linear(4, 3)

    def build(self, name):
        return self.linear(self.cast(name))


block = Net()
with onnxblock.empty_base(opset_version=17) as accessor:
    accessor.model.ir_version = 8
    accessor.model.graph.input.append(
        onnx.helper.make_tensor_value_info("words", onnx.TensorProto.STRING, ["N", 4])
    )
    block("words")
model = block.to_model_proto()
for i, tensor in enumerate(model.graph.initializer):
    value = np.random.default_rng(i).normal(size=tensor.dims).astype(np.float32)
    tensor.CopyFrom(onnx.numpy_helper.from_array(value, tensor.name))
artifacts.generate_artifacts(
    model,
    requires_grad=[t.name for t in model.graph.initializer],
    loss=artifacts.LossType.MSELoss,
    optimizer=artifacts.OptimType.SGD,
)
state = CheckpointState.load_checkpoint("checkpoint")
module = Module("training_model.onnx", state, "eval_model.onnx")
optimizer = Optimizer("optimizer_model.onnx", module)
optimizer.set_learning_rate(0.01)
words = np.random.default_rng(3).integers(0, 5, size=(6, 4)).astype(str)
losses = []
for _ in range(3):
    losses.append(np.ravel(module(words, targets())))
    optimizer.step()
    module.lazy_reset_grad()
results = {
    "inputs": module.input_names()[:2],
    "losses": losses,
    "evaluated": np.ravel(module.eval()(words, targets())),
    "numbers": error_of(lambda: module(np.zeros((6, 4), np.float32), targets())),
}
