"""The loss on top of the model, as a forward model."""

import numpy as np
import onnxruntime
import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import batch, mlp, names, targets


class MSE(onnxblock.ForwardBlock):
    def __init__(self):
        super().__init__()
        self.loss = onnxblock.loss.MSELoss()

    def build(self, output_name):
        return self.loss(output_name)


block = MSE()
model = mlp()
with onnxblock.base(model) as accessor:
    output = block("logits")
    live = accessor.model

forward = block.to_model_proto()
session = onnxruntime.InferenceSession(
    forward.SerializeToString(), providers=["CPUExecutionProvider"]
)
(loss,) = session.run(None, {"x": batch(), "target": targets()})
results = {
    "inputs": names(forward.graph.input),
    "output is the loss": names(forward.graph.output) == [output],
    "live model": names(live.graph.input),
    "opsets": sorted(o.version for o in forward.opset_import if o.domain == ""),
    "loss": np.asarray(loss).ravel(),
    "base model": [len(model.graph.node), names(model.graph.output)],
}
