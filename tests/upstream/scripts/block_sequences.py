"""Sequences, the norm of several tensors, and PassThrough, as optimizer blocks use them."""

import numpy as np
import onnx
import onnxruntime
import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import names


class Norm(onnxblock.ForwardBlock):
    def __init__(self):
        super().__init__()
        self.norm = onnxblock.blocks.ReduceAllL2()

    def build(self, *tensors):
        return self.norm(*tensors)


def add_inputs(model):
    for name in ("a", "b"):
        model.graph.input.append(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3])
        )


with onnxblock.empty_base(opset_version=15) as accessor:
    add_inputs(accessor.model)
    sequence = onnxblock.blocks.SequenceConstruct()("a", "b")
    clipped = onnxblock.optim.ClipGradNorm(2.5)(sequence)
    both = onnxblock.blocks.PassThrough()("a", "b")
    none = onnxblock.blocks.PassThrough()()
    model = accessor.model

block = Norm()
with onnxblock.empty_base(opset_version=15) as accessor:
    accessor.model.ir_version = 8
    add_inputs(accessor.model)
    block("a", "b")
session = onnxruntime.InferenceSession(
    block.to_model_proto().SerializeToString(), providers=["CPUExecutionProvider"]
)
a = np.arange(6, dtype=np.float32).reshape(2, 3)
(norm,) = session.run(None, {"a": a, "b": 2 - a})

results = {
    "inputs": names(model.graph.input),
    "nodes": [[n.op_type, n.domain] for n in model.graph.node],
    "chained": [list(n.input) for n in model.graph.node] == [["a", "b"], [sequence]],
    "max_norm": onnx.helper.get_attribute_value(model.graph.node[-1].attribute[0]),
    "names": [isinstance(name, str) for name in (sequence, clipped)],
    "passed": [list(both), list(none)],
    "opset": [o.version for o in model.opset_import if o.domain == ""],
    "norm": np.ravel(norm),
}
