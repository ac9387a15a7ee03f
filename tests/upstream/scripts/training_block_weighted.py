"""Two losses of two outputs, weighted: in a TrainingBlock, by blocks that share attributes."""

import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import names, two_heads


class Weighted(onnxblock.TrainingBlock):
    def __init__(self):
        super().__init__()
        self.near = onnxblock.loss.CrossEntropyLoss()
        self.far = onnxblock.loss.CrossEntropyLoss()
        self.w1 = onnxblock.blocks.Constant(0.4)
        self.w2 = onnxblock.blocks.Constant(0.6)
        self.add = onnxblock.blocks.Add()
        self.mul = onnxblock.blocks.Mul()

    def build(self, near, far):
        return self.add(
            self.mul(self.w1(), self.near(near, labels_name="labels1")),
            self.mul(self.w2(), self.far(far, labels_name="labels2")),
        )


block = Weighted()
for name in ("body.weight", "far.weight"):
    block.requires_grad(name)
block.requires_grad("near.weight", False)
with onnxblock.base(two_heads()):
    block("near", "far")
training_model, eval_model = block.to_model_proto()
results = {
    "training inputs": names(training_model.graph.input),
    "eval inputs": names(eval_model.graph.input),
    "training outputs": names(training_model.graph.output)[1:],
    "parameters": [names(kind) for kind in block.parameters()],
}
