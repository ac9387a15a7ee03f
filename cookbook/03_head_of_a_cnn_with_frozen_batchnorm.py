"""Fine-tuning: only the head of a CNN is trained, and its BatchNorm statistics stay as they are."""

# %% A CNN learns the digits 0 to 4; what `export` writes is what one finds on the web.
import tempfile

import numpy as np
import onnx
from sklearn.datasets import load_digits

import blockdsl
from blockdsl import artifacts, blocks
from blockdsl.artifacts import LossType, OptimType

pixels, digits = load_digits(return_X_y=True)
images = (pixels / 16).reshape(-1, 1, 8, 8).astype(np.float32)
low = digits < 5


class Net(blockdsl.ForwardBlock):
    def build(self, image):
        x = blocks.BatchNorm(16)(blocks.Conv(1, 16, 3, stride=2)(image)).relu()
        return blocks.Linear(16 * 3 * 3, 5)(blocks.Flatten()(x))


with blockdsl.empty_base():
    net = Net()
    logits = net(blockdsl.input("image", shape=("batch", 1, 8, 8)))
    forward = net.to_model_proto()


def accuracy(outputs, inputs):
    return np.mean(outputs[logits].argmax(axis=1) == inputs["labels"])


def trainer_of(model, folder, **what):
    artifacts.generate_artifacts(
        model,
        loss=LossType.CrossEntropyLoss,
        optimizer=OptimType.AdamW,
        artifact_directory=folder,
        additional_output_names=[logits],
        **what,
    )
    return blockdsl.Trainer(folder)


with tempfile.TemporaryDirectory() as folder:
    trainer = trainer_of(forward, folder)
    data = blockdsl.Batches(images[low], digits[low])
    trainer.fit(data, epochs=3, learning_rate=0.01, progress=False)
    trainer.export(f"{folder}/pretrained.onnx", [logits])
    pretrained = onnx.load(f"{folder}/pretrained.onnx")

# %% Its head learns the digits 5 to 9. BatchNorm is in its inference form: it stays in it.
before = {t.name: onnx.numpy_helper.to_array(t) for t in pretrained.graph.initializer}
with tempfile.TemporaryDirectory() as folder:
    trainer = trainer_of(pretrained, folder, requires_grad=["*Linear*"], frozen_params=["*Batch*"])
    data = blockdsl.Batches(images[~low], digits[~low] - 5)
    batch = images[~low][:32], digits[~low][:32] - 5
    train_loss, eval_loss = trainer.module(*batch)[0], trainer.module.eval()(*batch)[0]
    trainer.module.train()
    start = trainer.evaluate(data, {"accuracy": accuracy})
    trainer.fit(data, epochs=3, learning_rate=0.01, progress=False)
    end = trainer.evaluate(data, {"accuracy": accuracy})
    trainer.export(f"{folder}/tuned.onnx", [logits])
    tuned = onnx.load(f"{folder}/tuned.onnx")

print(f"accuracy on the new digits: {start['accuracy']:.1%} -> {end['accuracy']:.1%}")
after = {t.name: onnx.numpy_helper.to_array(t) for t in tuned.graph.initializer}
changed = {name for name in before if not np.array_equal(before[name], after[name])}
np.testing.assert_allclose(train_loss, eval_loss, rtol=1e-5)  # no batch statistics in training
assert changed == {"Net/Linear.weight", "Net/Linear.bias"}
assert end["accuracy"] > 0.95
