"""Gradients of any model by any of its tensors: no loss, no optimizer, no checkpoint."""

# %% A model that says how sure it is of a class.
import numpy as np
import onnxruntime

import blockdsl
from blockdsl import blocks


class Confidence(blockdsl.ForwardBlock):
    def build(self, x):
        hidden = blocks.Linear(6, 8)(x).tanh()
        logits = blocks.Linear(8, 3)(hidden)
        return logits.log_softmax(axis=1)[:, 0].sum(), logits


with blockdsl.empty_base():
    confidence = Confidence()
    score, logits = confidence(blockdsl.input("x", shape=("batch", 6)))
    model = confidence.to_model_proto()

# %% The model with two more outputs: the gradient by its input, and by a parameter.
explained = blockdsl.grad(model, wrt=["x", "Confidence/Linear.weight"], of=score)
names = [output.name for output in explained.graph.output]
print(names)
assert names == [score, logits, "x_grad", "Confidence/Linear.weight_grad"]

x = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
session = onnxruntime.InferenceSession(
    explained.SerializeToString(), providers=["CPUExecutionProvider"]
)


def run(x):
    return dict(zip(names, session.run(None, {"x": x}), strict=True))


# %% It is the slope: a small step along a direction changes the score by step times slope.
direction = np.random.default_rng(1).normal(size=x.shape).astype(np.float32)
step = np.float32(1e-2)
difference = run(x + step * direction)[score] - run(x - step * direction)[score]
slope = np.sum(run(x)["x_grad"] * direction)
print(f"slope {slope:.5f}, by differences {difference / (2 * step):.5f}")
np.testing.assert_allclose(difference / (2 * step), slope, rtol=1e-2)

# %% A use of it: the smallest nudge of an input that changes the model's mind.
sure = run(x)[logits].argmax(axis=1) == 0
nudged = x.copy()
for _ in range(100):
    found = run(nudged)
    still = (found[logits].argmax(axis=1) == 0)[:, None]
    nudged -= 0.05 * still * found["x_grad"] / np.linalg.norm(found["x_grad"], axis=1)[:, None]
print(f"{sure.sum()} of {len(x)} inputs were class 0, by nudges of norm", end=" ")
print(np.linalg.norm(nudged - x, axis=1).round(2), "none is")
assert not np.any(run(nudged)[logits].argmax(axis=1) == 0)
assert np.array_equal(nudged[~sure], x[~sure])
