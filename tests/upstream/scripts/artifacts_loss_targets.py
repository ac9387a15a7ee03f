"""loss_input_names: the names of the targets too, which the loss adds to the model."""

import copy

import onnx
import onnxruntime.training.onnxblock as onnxblock
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module

from tests.upstream.models import batch, error_of, mlp, names, targets, two_heads


class Distillation(onnxblock.Block):
    """The squared errors against a target and against a teacher's logits."""

    def __init__(self):
        super().__init__()
        self.losses = onnxblock.loss.MSELoss(), onnxblock.loss.MSELoss()
        self.add = onnxblock.blocks.Add()

    def build(self, logits, teacher, target):
        added = copy.deepcopy(next(o for o in self.base.graph.output if o.name == logits))
        added.name = teacher
        self.base.graph.input.append(added)
        soft = onnxblock.blocks.Mul()(teacher, teacher)
        return self.add(self.losses[0](logits, target_name=soft), self.losses[1](logits, target))


def run(model, trained, loss, loss_inputs, *targets_):
    artifacts.generate_artifacts(
        model, requires_grad=[trained], loss=loss, loss_input_names=loss_inputs
    )
    state = CheckpointState.load_checkpoint("checkpoint")
    module = Module("training_model.onnx", state, "eval_model.onnx")
    return {
        "inputs": names(onnx.load("training_model.onnx").graph.input),
        "loss": module(batch(), *targets_),
        "gradient": state.parameters[trained].grad,
    }


MSE = artifacts.LossType.MSELoss
results = {
    "a target's name": run(mlp(), "fc2.weight", MSE, ["logits", "wanted"], targets()),
    "one of two outputs": run(two_heads(), "near.weight", MSE, ["near", "wanted"], targets()),
    "two targets": run(
        mlp(), "fc2.weight", Distillation(), ["logits", "teacher", "wanted"], targets(), targets()
    ),
    "unknown": error_of(lambda: run(mlp(), "fc2.weight", MSE, ["nothing", "wanted"], targets())),
}
