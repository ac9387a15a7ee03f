"""Labels that do not count, and labels under a name of one's own."""

import numpy as np
import onnxruntime
import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import batch, labels, mlp, names


class Ignoring(onnxblock.ForwardBlock):
    def __init__(self):
        super().__init__()
        self.loss = onnxblock.loss.CrossEntropyLoss(ignore_index=1)

    def build(self, output_name):
        return self.loss(output_name, labels_name="classes")


block = Ignoring()
with onnxblock.base(mlp()):
    block("logits")
model = block.to_model_proto()
session = onnxruntime.InferenceSession(
    model.SerializeToString(), providers=["CPUExecutionProvider"]
)
(loss,) = session.run(None, {"x": batch(), "classes": labels()})
results = {
    "inputs": names(model.graph.input),
    "type of the labels": model.graph.input[1].type.tensor_type.elem_type,
    "rank of the labels": len(model.graph.input[1].type.tensor_type.shape.dim),
    "loss": np.asarray(loss).ravel(),
}
