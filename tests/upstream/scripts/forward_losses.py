"""Every loss and reduction, run by an inference session."""

import numpy as np
import onnxruntime
import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import batch, labels, mlp, names, targets

LOSSES = {
    "MSELoss": (onnxblock.loss.MSELoss, targets()),
    "L1Loss": (onnxblock.loss.L1Loss, targets()),
    "BCEWithLogitsLoss": (onnxblock.loss.BCEWithLogitsLoss, targets()),
    "CrossEntropyLoss": (onnxblock.loss.CrossEntropyLoss, labels()),
}


def forward_model(loss):
    class Forward(onnxblock.ForwardBlock):
        def build(self, output_name):
            return loss(output_name)

    block = Forward()
    with onnxblock.base(mlp()):
        block("logits")
    return block.to_model_proto()


results = {}
for name, (kind, target) in LOSSES.items():
    for reduction in ("mean", "sum"):
        model = forward_model(kind(reduction=reduction))
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        target_name = model.graph.input[1].name
        (loss,) = session.run(None, {"x": batch(), target_name: target})
        results[f"{name} {reduction}"] = {
            "inputs": names(model.graph.input),
            "loss": np.asarray(loss).ravel(),
        }
