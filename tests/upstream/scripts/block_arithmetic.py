"""A custom loss of elementary blocks: all that take and give float tensors."""

import numpy as np
import onnxruntime
import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import batch, mlp, targets


class Arithmetic(onnxblock.ForwardBlock):
    def __init__(self):
        super().__init__()
        self.add = onnxblock.blocks.Add()
        self.sub = onnxblock.blocks.Sub()
        self.mul = onnxblock.blocks.Mul()
        self.div = onnxblock.blocks.Div()
        self.cube = onnxblock.blocks.Pow(3.0)
        self.neg = onnxblock.blocks.Neg()
        self.abs = onnxblock.blocks.Abs()
        self.log = onnxblock.blocks.Log()
        self.sigmoid = onnxblock.blocks.Sigmoid()
        self.clip = onnxblock.blocks.Clip(clip_min=-0.5, clip_max=0.75)
        self.floor = onnxblock.blocks.Clip(clip_min=0.1)
        self.half = onnxblock.blocks.Constant(0.5)
        self.target = onnxblock.blocks.InputLike("logits")
        self.sum = onnxblock.blocks.ReduceSum()
        self.mean = onnxblock.blocks.ReduceMean(keepdims=False)

    def build(self, output_name):
        error = self.sub(self.target("goal"), output_name)
        cubed = self.abs(self.cube(error))
        squashed = self.neg(self.log(self.floor(self.sigmoid(output_name))))
        ratio = self.div(self.clip(error), self.add(self.half(), cubed))
        return self.mean(self.mul(self.sum(ratio), squashed))


block = Arithmetic()
with onnxblock.base(mlp()):
    block("logits")
session = onnxruntime.InferenceSession(
    block.to_model_proto().SerializeToString(), providers=["CPUExecutionProvider"]
)
(loss,) = session.run(None, {"x": batch(), "goal": targets()})
results = {
    "operators": [n.op_type for n in block.to_model_proto().graph.node],
    "loss": np.asarray(loss).ravel(),
}
