"""Models from functions, their artifacts, and runs over these."""

from __future__ import annotations

import numpy as np

import blockdsl
from blockdsl.api import CheckpointState, Module, Optimizer
from blockdsl.artifacts import LossType, OptimType, generate_artifacts
from blockdsl.graph import current


class Built(blockdsl.ForwardBlock):
    """A forward model from a function."""

    def __init__(self, build):
        self._build = build

    def build(self, *inputs):
        with current().names.root():
            return self._build(*inputs)


def forward(build, *shapes, dtype=np.float32, opset=17):
    """The model of a function of inputs `x`, `x1`, ... of these shapes, and a type or one each."""
    block = Built(build)
    dtypes = dtype if isinstance(dtype, list) else [dtype] * len(shapes)
    with blockdsl.empty_base(opset_version=opset):
        names = ["x", *(f"x{i}" for i in range(1, len(shapes)))]
        block(*map(blockdsl.input, names, dtypes, shapes))
        return block.to_model_proto()


def weight(name, *shape, dtype=np.float32, low=-0.5, high=0.5):
    """A parameter of the model under construction."""
    seed = sum(map(ord, name))
    array = np.random.default_rng(seed).uniform(low, high, shape).astype(dtype)
    return current().add_initializer(array, name)


def generate(folder, model, **settings):
    settings = {"loss": LossType.MSELoss, "optimizer": OptimType.AdamW, **settings}
    generate_artifacts(model, artifact_directory=folder, **settings)
    return folder


class Run:
    """Artifacts, opened for training."""

    def __init__(self, folder, engine):
        self.state = CheckpointState.load_checkpoint(folder / "checkpoint", engine=engine)
        self.module = Module(folder / "training_model.onnx", self.state, folder / "eval_model.onnx")
        self.optimizer = Optimizer(folder / "optimizer_model.onnx", self.module)

    def step(self, *batch):
        outputs = self.module(*batch)
        self.optimizer.step()
        self.module.lazy_reset_grad()
        return float(outputs[0] if isinstance(outputs, tuple) else outputs)

    def train(self, *batch, steps=8, rate=0.02):
        """Losses, which fall, by gradients that are finite and not all zero."""
        self.optimizer.set_learning_rate(rate)
        losses = [self.step(*batch) for _ in range(steps)]
        assert np.all(np.isfinite(losses))
        assert losses[-1] < losses[0]
        return losses

    def evaluate(self, *batch):
        outputs = self.module.eval()(*batch)
        self.module.train()
        return outputs

    def gradients(self, *batch):
        self.module.lazy_reset_grad()
        self.module(*batch)
        return {n: p.grad.copy() for n, p in self.state.parameters if p.requires_grad}

    def values(self):
        return {name: parameter.data.copy() for name, parameter in self.state.parameters}


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)
