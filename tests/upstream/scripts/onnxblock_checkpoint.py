"""save_checkpoint of a block's parameters, and load_checkpoint_to_model."""

import os
import pathlib

import numpy as np
import onnx
import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import error_of, mlp


class Training(onnxblock.TrainingBlock):
    def __init__(self):
        super().__init__()
        self.loss = onnxblock.loss.MSELoss()

    def build(self, output_name):
        return self.loss(output_name)


model = mlp()
block = Training()
for tensor in model.graph.initializer:
    block.requires_grad(tensor.name, tensor.name.startswith("fc2"))
with onnxblock.base(model):
    block("logits")
onnxblock.save_checkpoint(block.parameters(), "checkpoint")
onnxblock.save_checkpoint(block.parameters(), pathlib.Path("nominal"), nominal_checkpoint=True)

zeros = mlp()
for tensor in zeros.graph.initializer:
    value = onnx.numpy_helper.to_array(tensor)
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.zeros_like(value), tensor.name))
onnxblock.load_checkpoint_to_model("checkpoint", zeros)
results = {
    "loaded": {t.name: onnx.numpy_helper.to_array(t) for t in zeros.graph.initializer},
    "nominal is smaller": os.path.getsize("nominal") < os.path.getsize("checkpoint"),
    "nothing to save": error_of(
        lambda: onnxblock.save_checkpoint(None, "none"), "No checkpoint parameters provided"
    ),
    "nothing to load": error_of(lambda: onnxblock.load_checkpoint_to_model("missing", zeros)),
}
