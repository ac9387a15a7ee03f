"""A small network learns from a large one, an ONNX file, which stays as it is."""

# %% The teacher: any ONNX file.
import tempfile
from pathlib import Path

import numpy as np
import onnx

import blockdsl
from blockdsl import artifacts, blocks
from blockdsl.api import CheckpointState, Module, Optimizer

folder = Path(tempfile.mkdtemp())


class Teacher(blockdsl.ForwardBlock):
    def __init__(self):
        self.layers = blocks.Sequential(blocks.Linear(8, 64), blocks.Tanh(), blocks.Linear(64, 3))

    def build(self, x):
        return self.layers(x)


with blockdsl.empty_base():
    teacher = Teacher()
    teacher(blockdsl.input("x", shape=("batch", 8)))
    onnx.save(teacher.to_model_proto(), folder / "teacher.onnx")


# %% The student, beside the teacher in one model: the loss is how far apart they are.
class Distillation(blockdsl.ForwardBlock):
    def __init__(self):
        self.teacher = blocks.Model(folder / "teacher.onnx", trainable=False)
        self.student = blocks.Sequential(blocks.Linear(8, 6), blocks.Tanh(), blocks.Linear(6, 3))
        self.temperature = 2.0

    def build(self, x):
        taught = (self.teacher(x) / self.temperature).softmax()
        learned = (self.student(x) / self.temperature).log_softmax()
        return -(taught * learned).sum(axis=1).mean()


with blockdsl.empty_base():
    distillation = Distillation()
    distillation(blockdsl.input("x", shape=("batch", 8)))

artifacts.generate_artifacts(
    distillation.to_model_proto(),
    optimizer=artifacts.OptimType.AdamW,
    artifact_directory=folder,
)

# %% Only the student is trained, and in the checkpoint.
state = CheckpointState.load_checkpoint(folder / "checkpoint")
assert all(name.startswith("Distillation/student/") for name, _ in state.parameters)

module = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
optimizer = Optimizer(folder / "optimizer_model.onnx", module)
optimizer.set_learning_rate(0.03)
x = np.random.default_rng(0).normal(size=(256, 8)).astype(np.float32)
losses = []
for _ in range(60):
    losses.append(float(module(x)))
    optimizer.step()
    module.lazy_reset_grad()
print(f"{losses[0]:.4f} -> {losses[-1]:.4f}")
assert losses[-1] < losses[0]
