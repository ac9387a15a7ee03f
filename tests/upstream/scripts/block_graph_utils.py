"""Custom blocks on the private helpers of onnxblock that public programs use."""

import copy

import numpy as np
import onnx
import onnxruntime
import onnxruntime.training.onnxblock as onnxblock
from onnxruntime.training.onnxblock import _graph_utils

from tests.upstream.models import batch, error_of, mlp, targets


class SumOver(onnxblock.blocks._UnaryOp):
    """ReduceSum over axes that are an input, as they are from opset 13 on."""

    def __init__(self, axes=None, keepdims=True):
        super().__init__("ReduceSum", keepdims=keepdims)
        self._axes = axes

    def build(self, input_name):
        if self._axes is None:
            return super().build(input_name)
        axes = _graph_utils.generate_graph_name("axes")
        self.base.graph.initializer.append(
            onnx.numpy_helper.from_array(np.array(self._axes, np.int64), axes)
        )
        total = _graph_utils.generate_graph_name(f"{self._op_name.lower()}_output")
        self.base.graph.node.append(
            onnx.helper.make_node(
                self._op_name,
                [input_name, axes],
                [total],
                _graph_utils.generate_graph_name(self._op_name),
                **self._attributes,
            )
        )
        return total


class Largest(onnxblock.blocks._BinaryOp):
    def __init__(self):
        super().__init__("Max")


class Dice(onnxblock.ForwardBlock):
    """1 - 2 sum(p t) / (sum(p) + sum(t)) of each row, and the mean over the rows."""

    def __init__(self):
        super().__init__()
        self.mul = onnxblock.blocks.Mul()
        self.add = onnxblock.blocks.Add()
        self.sub = onnxblock.blocks.Sub()
        self.div = onnxblock.blocks.Div()
        self.sum = SumOver(axes=[1], keepdims=False)
        self.total = SumOver(keepdims=False)
        self.sigmoid = onnxblock.blocks.Sigmoid()
        self.largest = Largest()

    def number(self, value):
        name = _graph_utils.generate_graph_name("dice.number")
        self.base.graph.initializer.append(
            onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, [1], [value])
        )
        return name

    def build(self, scores, target="target"):
        if not _graph_utils.node_arg_exists(self.base, target):
            like = _graph_utils.get_output_from_output_name(self.base, scores)
            added = copy.deepcopy(like)
            added.name = target
            self.base.graph.input.append(added)
        p = self.sigmoid(scores)
        both = self.add(self.sum(p), self.sum(target))
        both = self.largest(both, self.number(0.25))
        overlap = self.mul(self.number(2.0), self.sum(self.mul(p, target)))
        return self.total(self.sub(self.number(1.0), self.div(overlap, both)))


block = Dice()
with onnxblock.base(mlp()) as accessor:
    before = _graph_utils.node_arg_exists(accessor.model, "target")
    loss = block("logits")
    after = _graph_utils.node_arg_exists(accessor.model, "target")
    found = _graph_utils.get_input_from_input_name(accessor.model, "target")
    found = [found.name, found.type.tensor_type.elem_type]
    errors = {
        "no input": error_of(
            lambda: _graph_utils.get_input_from_input_name(accessor.model, "logits"),
            "name logits is not a graph input",
        ),
        "no output": error_of(
            lambda: _graph_utils.get_output_from_output_name(accessor.model, "x"),
            "The provided output name x is not a graph output",
        ),
    }
    registered = []
    for names in (loss, [loss]):
        _graph_utils.register_graph_outputs(accessor.model, names)
        registered.append([o.name == loss for o in accessor.model.graph.output])
    errors["not registered"] = error_of(
        lambda: _graph_utils.register_graph_outputs(accessor.model, ["nothing"]),
        "The provided name nothing is not a graph value info or a graph output.",
    )
session = onnxruntime.InferenceSession(
    block.to_model_proto().SerializeToString(), providers=["CPUExecutionProvider"]
)
feeds = {"x": batch(), "target": (targets() > 0).astype(np.float32)}
free = [_graph_utils.generate_graph_name("free") for _ in range(3)]
results = {
    "loss": np.asarray(session.run(None, feeds)[0]).reshape(-1),
    "before": before,
    "after": after,
    "input": found,
    "registered": registered,
    "different names": len(set(free)),
    **errors,
}
