"""Labels that are words: LabelEncoder in front of a cross entropy."""

import numpy as np
import onnx
import onnxruntime
import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import batch, labels, mlp, names


class Words(onnxblock.ForwardBlock):
    def __init__(self):
        super().__init__()
        self.loss = onnxblock.loss.CrossEntropyLoss()
        self.encoder = onnxblock.blocks.LabelEncoder(
            default_int64=0, keys_strings=["cat", "dog", "owl"], values_int64s=[0, 1, 2]
        )

    def build(self, output_name):
        self.base.graph.input.append(
            onnx.helper.make_tensor_value_info("words", onnx.TensorProto.STRING, ["N"])
        )
        return self.loss(output_name, labels_name=self.encoder("words"))


model = mlp()
model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 3))
block = Words()
with onnxblock.base(model):
    block("logits")
    forward = block.to_model_proto()
session = onnxruntime.InferenceSession(
    forward.SerializeToString(), providers=["CPUExecutionProvider"]
)
words = np.array(["cat", "dog", "owl"])[labels()]
(loss,) = session.run(None, {"x": batch(), "words": words})
results = {"inputs": names(forward.graph.input), "loss": np.asarray(loss).ravel()}
