"""A Huber loss that is appended to the model node by node, as onnxblock's own blocks are."""

import numpy as np
import onnx
import onnxruntime
import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import batch, mlp, targets


class Huber(onnxblock.Block):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def build(self, prediction, target_name="target"):
        graph = self.base.graph
        target = onnx.ValueInfoProto()
        target.CopyFrom(next(o for o in graph.output if o.name == prediction))
        target.name = target_name
        graph.input.append(target)
        for name, value in (("delta", self.delta), ("half", 0.5)):
            graph.initializer.append(
                onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, [], [value])
            )

        def node(kind, inputs, output, **attributes):
            graph.node.append(onnx.helper.make_node(kind, inputs, [output], **attributes))
            return output

        error = node("Abs", [node("Sub", [prediction, target_name], "error")], "size")
        quadratic = node("Min", [error, "delta"], "quadratic")
        linear = node("Sub", [error, quadratic], "linear")
        squared = node("Mul", [node("Mul", [quadratic, quadratic], "q2"), "half"], "squared")
        rest = node("Mul", [linear, "delta"], "rest")
        return node("ReduceMean", [node("Add", [squared, rest], "huber")], "loss", keepdims=0)


class Forward(onnxblock.ForwardBlock):
    def __init__(self):
        super().__init__()
        self.loss = Huber(0.5)

    def build(self, output_name):
        return self.loss(output_name)


block = Forward()
with onnxblock.base(mlp()):
    name = block("logits")
session = onnxruntime.InferenceSession(
    block.to_model_proto().SerializeToString(), providers=["CPUExecutionProvider"]
)
(loss,) = session.run(None, {"x": batch(), "target": targets()})
results = {"output": name, "loss": np.asarray(loss)}
