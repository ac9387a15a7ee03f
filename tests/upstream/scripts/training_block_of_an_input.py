"""The gradient of an input, beside those of parameters."""

import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import mlp, names


class Training(onnxblock.TrainingBlock):
    def __init__(self):
        super().__init__()
        self.loss = onnxblock.loss.MSELoss()

    def build(self, output_name):
        return self.loss(output_name)


block = Training()
block.requires_grad("x")
block.requires_grad("fc2.bias")
with onnxblock.base(mlp("Tanh")):
    block("logits")
training_model, _ = block.to_model_proto()
trainable, frozen = block.parameters()
results = {
    "inputs": names(training_model.graph.input),
    "outputs": names(training_model.graph.output)[1:],
    "parameters": [names(trainable), names(frozen)],
}
