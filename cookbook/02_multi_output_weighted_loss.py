"""Two outputs, two targets, one weighted loss: as onnxblock code writes it, and in two lines."""

# %% One line is not as it was for onnxruntime-training: the import.
import tempfile

import numpy as np

import blockdsl as onnxblock
from blockdsl import artifacts
from blockdsl.api import CheckpointState, Module, Optimizer


class WeightedAverageLoss(onnxblock.Block):
    def __init__(self):
        self._loss1 = onnxblock.loss.MSELoss()
        self._loss2 = onnxblock.loss.MSELoss()
        self._w1 = onnxblock.blocks.Constant(0.4)
        self._w2 = onnxblock.blocks.Constant(0.6)
        self._add = onnxblock.blocks.Add()
        self._mul = onnxblock.blocks.Mul()

    def build(self, loss_input_name1, loss_input_name2):
        return self._add(
            self._mul(self._w1(), self._loss1(loss_input_name1, target_name="target1")),
            self._mul(self._w2(), self._loss2(loss_input_name2, target_name="target2")),
        )


# %% The same, now that names of tensors have operators.
class ShortWeightedAverageLoss(onnxblock.Block):
    def build(self, a, b):
        mse = onnxblock.loss.MSELoss()
        return 0.4 * mse(a, "target1") + 0.6 * mse(b, "target2")


# %% A forward model with two outputs, and data that it can fit.
class TwoHeads(onnxblock.ForwardBlock):
    def build(self, x):
        hidden = onnxblock.blocks.Linear(4, 16)(x).tanh()
        return onnxblock.blocks.Linear(16, 2)(hidden), onnxblock.blocks.Linear(16, 3)(hidden)


with onnxblock.empty_base():
    heads = TwoHeads()
    heads(onnxblock.input("x", shape=("batch", 4)))
    model = heads.to_model_proto()

rng = np.random.default_rng(0)
x = rng.normal(size=(64, 4)).astype(np.float32)
target1, target2 = np.sin(x[:, :2]), np.abs(x[:, 1:])


# %% Both losses train the same model to the same values.
def losses_of(loss):
    with tempfile.TemporaryDirectory() as folder:
        artifacts.generate_artifacts(
            model,
            loss=loss,
            optimizer=artifacts.OptimType.AdamW,
            artifact_directory=folder,
        )
        state = CheckpointState.load_checkpoint(f"{folder}/checkpoint")
        module = Module(f"{folder}/training_model.onnx", state)
        optimizer = Optimizer(f"{folder}/optimizer_model.onnx", module)
        optimizer.set_learning_rate(0.02)
        assert module.input_names() == ["x", "target1", "target2"]
        losses = []
        for _ in range(150):
            losses.append(float(module(x, target1, target2)))
            optimizer.step()
            module.lazy_reset_grad()
        return losses


long, short = losses_of(WeightedAverageLoss()), losses_of(ShortWeightedAverageLoss())
print(f"loss {long[0]:.3f} -> {long[-1]:.3f}, and {short[0]:.3f} -> {short[-1]:.3f}")
np.testing.assert_allclose(long, short, rtol=1e-4)
assert long[-1] < long[0] / 10
