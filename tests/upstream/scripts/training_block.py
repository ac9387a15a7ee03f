"""What a TrainingBlock makes, and what requires_grad says."""

import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import mlp, names


class Training(onnxblock.TrainingBlock):
    def __init__(self):
        super().__init__()
        self.loss = onnxblock.loss.CrossEntropyLoss()

    def build(self, output_name):
        return self.loss(output_name), output_name


block = Training()
for name in ("fc2.weight", "fc1.weight", "fc2.bias", "fc1.bias"):
    block.requires_grad(name)
block.requires_grad("fc1.bias", False)
block.requires_grad("fc2.bias", False)
block.requires_grad("fc2.bias", True)
with onnxblock.base(mlp()) as accessor:
    returned = block("logits")
    live = accessor.model

training_model, eval_model = block.to_model_proto()
trainable, frozen = block.parameters()
results = {
    "returned": [len(returned), returned[1]],
    "training inputs": names(training_model.graph.input),
    "training outputs": names(training_model.graph.output)[1:],
    "eval inputs": names(eval_model.graph.input),
    "eval outputs": names(eval_model.graph.output)[1:],
    "trainable": names(trainable),
    "frozen": names(frozen),
    "initializers": [t for t in names(eval_model.graph.initializer) if t.startswith("fc")],
    "live model": names(live.graph.input) == names(training_model.graph.input),
}
