"""A loss of your own is a class with a `build`: here the pinball loss, which trains a quantile."""

# %% A forward model: a polynomial of the input, of which the coefficients are trained.
import tempfile

import numpy as np

import blockdsl
from blockdsl import artifacts, blocks
from blockdsl.api import CheckpointState, Module, Optimizer


class Polynomial(blockdsl.ForwardBlock):
    def __init__(self):
        self.linear = blocks.Linear(3, 1)

    def build(self, x):
        return self.linear(blocks.Concat(axis=1)(x, x**2, x**3))


with blockdsl.empty_base():
    polynomial = Polynomial()
    predicted = polynomial(blockdsl.input("x", shape=("batch", 1)))
    forward = polynomial.to_model_proto()


# %% The loss. `target` becomes an input of the training model, of the prediction's type and shape.
class PinballLoss(blockdsl.Block):
    """Its minimum is the quantile q: a prediction too low costs q, one too high 1 - q."""

    def __init__(self, q):
        self.q = q

    def build(self, prediction):
        error = blockdsl.input_like(prediction, "target") - prediction
        return blocks.Max()(self.q * error, (self.q - 1) * error).mean()


# %% Train it: one step is the gradient, the optimizer's step, and forgetting the gradient.
rng = np.random.default_rng(0)
x = rng.uniform(-1, 1, (2000, 1)).astype(np.float32)
target = (np.sin(2 * x) + rng.normal(0, 0.3, x.shape)).astype(np.float32)

with tempfile.TemporaryDirectory() as folder:
    artifacts.generate_artifacts(
        forward,
        loss=PinballLoss(0.9),
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory=folder,
        additional_output_names=[predicted],
    )
    state = CheckpointState.load_checkpoint(f"{folder}/checkpoint")
    module = Module(f"{folder}/training_model.onnx", state, f"{folder}/eval_model.onnx")
    optimizer = Optimizer(f"{folder}/optimizer_model.onnx", module)
    optimizer.set_learning_rate(0.03)
    losses = []
    for _ in range(300):
        loss, _ = module(x, target)
        losses.append(float(loss))
        optimizer.step()
        module.lazy_reset_grad()
    _, quantile = module.eval()(x, target)

below = np.mean(target < quantile)
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}; {below:.1%} of the targets are below the curve")
assert losses[-1] < 0.06 < losses[0]  # the noise alone costs 0.053
assert abs(below - 0.9) < 0.02
