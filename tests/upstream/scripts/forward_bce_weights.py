"""Binary cross entropy with weights and weights of the positive examples."""

import numpy as np
import onnxruntime
import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import batch, mlp, targets


class WeightedBCE(onnxblock.ForwardBlock):
    def __init__(self, **settings):
        super().__init__()
        self.loss = onnxblock.loss.BCEWithLogitsLoss(**settings)

    def build(self, output_name):
        return self.loss(output_name, target_name="truth")


SETTINGS = {
    "weight": {"weight": np.array([0.5, 1.0, 2.0], np.float32)},
    "pos_weight": {"pos_weight": np.array([3.0, 1.0, 0.25], np.float32)},
    "both, summed": {
        "weight": np.array([0.5, 1.0, 2.0], np.float32),
        "pos_weight": np.array([2.0], np.float32),
        "reduction": "sum",
    },
}
results = {}
for name, settings in SETTINGS.items():
    block = WeightedBCE(**settings)
    with onnxblock.base(mlp()):
        block("logits")
    session = onnxruntime.InferenceSession(
        block.to_model_proto().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (loss,) = session.run(None, {"x": batch(), "truth": targets()})
    results[name] = np.asarray(loss).ravel()
