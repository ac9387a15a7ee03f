"""A model from nothing: whole numbers cast to floats and two linear layers."""

import numpy as np
import onnx
import onnxruntime
import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import names


class Net(onnxblock.ForwardBlock):
    def __init__(self):
        super().__init__()
        self.cast = onnxblock.blocks.Cast(onnx.TensorProto.FLOAT)
        self.first = onnxblock.blocks.Linear(3, 4)
        self.last = onnxblock.blocks.Linear(4, 2, bias=False, alpha=0.5)
        self.sigmoid = onnxblock.blocks.Sigmoid()

    def build(self, name):
        return self.last(self.sigmoid(self.first(self.cast(name))))


block = Net()
with onnxblock.empty_base(opset_version=17) as accessor:
    accessor.model.ir_version = 8
    accessor.model.graph.input.append(
        onnx.helper.make_tensor_value_info("counts", onnx.TensorProto.INT64, ["N", 3])
    )
    block("counts")
model = block.to_model_proto()
weights = [t for t in model.graph.initializer if t.dims]
for i, tensor in enumerate(weights):
    value = np.random.default_rng(i).normal(size=tensor.dims).astype(np.float32)
    tensor.CopyFrom(onnx.numpy_helper.from_array(value, tensor.name))
session = onnxruntime.InferenceSession(
    model.SerializeToString(), providers=["CPUExecutionProvider"]
)
(y,) = session.run(None, {"counts": np.arange(12).reshape(4, 3)})
results = {
    "inputs": names(model.graph.input),
    "shapes": [list(t.dims) for t in weights],
    "opset": [o.version for o in model.opset_import if o.domain == ""],
    "y": y,
}
