"""The losses of the elements, and weights of classes."""

import numpy as np
import onnxruntime
import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import batch, error_of, labels, mlp


def losses_of(make):
    def run():
        class Forward(onnxblock.ForwardBlock):
            def __init__(self):
                super().__init__()
                self.loss = make()

            def build(self, output_name):
                return self.loss(output_name)

        block = Forward()
        with onnxblock.base(mlp()):
            block("logits")
        return block.to_model_proto()

    return run


model = losses_of(lambda: onnxblock.loss.CrossEntropyLoss(reduction="none"))()
session = onnxruntime.InferenceSession(
    model.SerializeToString(), providers=["CPUExecutionProvider"]
)
(losses,) = session.run(None, {"x": batch(), "labels": labels()})
weight = np.array([1.0, 2.0, 0.5], np.float32)
results = {
    "CrossEntropyLoss": losses,
    "MSELoss": error_of(losses_of(lambda: onnxblock.loss.MSELoss(reduction="none"))),
    "L1Loss": error_of(losses_of(lambda: onnxblock.loss.L1Loss(reduction="none"))),
    "weights": error_of(losses_of(lambda: onnxblock.loss.CrossEntropyLoss(weight=weight))),
}
