"""From an .onnx file to a trained one: a small CNN learns scikit-learn's handwritten digits.

The loss is a class of our own. Training is stopped in the middle and resumed from its checkpoint;
the trained model is exported and gives the same predictions in plain ONNX Runtime.
"""

# %% The data: 1797 images of 8x8 pixels, a fifth of them held out.
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from sklearn.datasets import load_digits

import blockdsl
from blockdsl import artifacts, blocks, optim

began = time.perf_counter()
folder = Path("artifacts/digits")
folder.mkdir(parents=True, exist_ok=True)

pixels, labels = load_digits(return_X_y=True)
images = (pixels / 16).reshape(-1, 1, 8, 8).astype(np.float32)
order = np.random.default_rng(0).permutation(len(images))
held_out, seen = order[:360], order[360:]

# %% A forward model in a file. Any other would do: one that PyTorch exported, say.
network = blocks.Sequential(
    blocks.Conv(1, 16, 3, padding=1),
    blocks.Relu(),
    blocks.Conv(16, 32, 3, padding=1),
    blocks.Relu(),
    blocks.MaxPool(2),
    blocks.Flatten(),
    blocks.Linear(32 * 4 * 4, 64),
    blocks.Relu(),
    blocks.Linear(64, 10),
)


class Classifier(blockdsl.ForwardBlock):
    def build(self, image):
        return network(image)


with blockdsl.empty_base():
    classifier = Classifier()
    logits = classifier(blockdsl.input("image", shape=("batch", 1, 8, 8)))
    onnx.save(classifier.to_model_proto(), folder / "forward.onnx")


# %% A loss of our own: digits that are recognised already count less.
class FocalLoss(blockdsl.Block):
    """(1 - p)^gamma times the cross entropy, of which p = e^-(cross entropy)."""

    def __init__(self, gamma=2.0):
        self.gamma = gamma
        self.cross_entropy = blockdsl.loss.CrossEntropyLoss(reduction="none")

    def build(self, scores):
        losses = self.cross_entropy(scores)  # it makes the labels an input of the model
        return ((1 - (-losses).exp()) ** self.gamma * losses).mean()


# %% Everything that training needs, as files.
artifacts.generate_artifacts(
    folder / "forward.onnx",
    loss=FocalLoss(),
    optimizer=optim.AdamW(weight_decay=0.01),
    artifact_directory=folder,
    additional_output_names=[logits],
)


# %% Training, stopped by force after 200 steps, and resumed.
class PowerCutError(Exception):
    pass


def pull_the_plug(step, loss):
    if step == 200:
        raise PowerCutError


def accuracy(outputs, inputs):
    return np.mean(outputs[logits].argmax(axis=1) == inputs["labels"])


settings = {
    "data": blockdsl.Batches(images[seen], labels[seen], size=32),
    "epochs": 10,
    "learning_rate": 0.003,
    "warmup_steps": 20,
    "decay": True,
    "validation": blockdsl.Batches(images[held_out], labels[held_out], shuffle=False),
    "metrics": {"accuracy": accuracy},
    "checkpoint_every": 75,
}
try:
    blockdsl.Trainer(folder).fit(**settings, on_step=pull_the_plug)
except PowerCutError:
    trainer = blockdsl.Trainer.resume(folder)
print(f"stopped after step 200, resumed after step {trainer.step}")
resumed_at = trainer.step
history = trainer.fit(**settings)
score = trainer.evaluate(settings["validation"], settings["metrics"])

# %% The trained model, for any ONNX Runtime.
trainer.export(folder / "digits.onnx", [logits])
session = onnxruntime.InferenceSession(folder / "digits.onnx", providers=["CPUExecutionProvider"])
(exported,) = session.run(None, {"image": images[held_out]})
_, trained = trainer.module.eval()(images[held_out], labels[held_out])

print(f"engine            {trainer.state.engine}")
print(f"steps             {trainer.step}, of which {len(history.losses)} after resuming")
print(f"held-out accuracy {score['accuracy']:.2%}, loss {score['loss']:.4f}")
print(f"artifacts         {folder}")
print(f"time              {time.perf_counter() - began:.1f} s")

assert resumed_at == 150
assert trainer.step == 10 * len(settings["data"])
assert score["accuracy"] > 0.97
assert np.array_equal(exported.argmax(axis=1), trained.argmax(axis=1))
np.testing.assert_allclose(exported, trained, rtol=1e-4, atol=1e-4)
assert [i.name for i in session.get_inputs()] == ["image"]  # the labels are gone
