"""A TrainingBlock without a word on what is trained still builds."""

import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import mlp, names


class Training(onnxblock.TrainingBlock):
    def __init__(self):
        super().__init__()
        self.loss = onnxblock.loss.CrossEntropyLoss()

    def build(self, output_name):
        return self.loss(output_name)


block = Training()
with onnxblock.base(mlp()):
    name = block("logits")
training_model, eval_model = block.to_model_proto()
results = {
    "outputs": [names(model.graph.output) == [name] for model in (training_model, eval_model)],
    "inputs": names(training_model.graph.input)[:2],
    "parameters": [names(kind) for kind in block.parameters()],
    "parameters among the inputs": names(eval_model.graph.input)[2:],
}
