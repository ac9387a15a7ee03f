"""A block of one's own that clips the gradients, as the optimizers' clip_grad."""

import onnx
import onnxruntime.training.onnxblock as onnxblock
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, labels, mlp


class HalfTheNorm(onnxblock.Block):
    def __init__(self, max_norm):
        super().__init__()
        self.max_norm = max_norm / 2

    def build(self, gradients_name):
        self.base.graph.node.append(
            onnx.helper.make_node(
                "InplaceClipGradNorm",
                [gradients_name],
                ["clipped"],
                name="clip",
                domain="com.microsoft",
                max_norm=self.max_norm,
            )
        )
        self.base.graph.value_info.append(
            onnx.helper.make_tensor_sequence_value_info("clipped", onnx.TensorProto.FLOAT, None)
        )
        return "clipped"


results = {}
for kind in (onnxblock.optim.AdamW, onnxblock.optim.SGD):
    artifacts.generate_artifacts(
        mlp(),
        requires_grad=["fc1.weight", "fc2.weight", "fc2.bias"],
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=kind(clip_grad=HalfTheNorm(0.2)),
    )
    state = CheckpointState.load_checkpoint("checkpoint")
    model = Module("training_model.onnx", state)
    optimizer = Optimizer("optimizer_model.onnx", model)
    optimizer.set_learning_rate(0.5)
    losses = []
    for _ in range(3):
        losses.append(model(batch(), labels()))
        optimizer.step()
        model.lazy_reset_grad()
    results[kind.__name__] = {"losses": losses, "bias": state.parameters["fc2.bias"].data}
