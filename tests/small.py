"""A small model and its artifacts, for the tests of what stands on top of them."""

from __future__ import annotations

import numpy as np

import blockdsl
from blockdsl import artifacts, blocks


def forward():
    """x [batch, 4] -> Linear(8) -> tanh -> Linear(2) -> y [batch, 2]."""

    class Net(blockdsl.ForwardBlock):
        def build(self, x):
            return blocks.Linear(8, 2)(blocks.Linear(4, 8)(x).tanh())

    with blockdsl.empty_base():
        net = Net()
        y = net(blockdsl.input("x", shape=("batch", 4)))
        return net.to_model_proto(), str(y)


MODEL, Y = forward()


def generate(folder, **changes):
    """Writes the artifacts of a regression; gives the folder."""
    settings = {
        "loss": artifacts.LossType.MSELoss,
        "optimizer": artifacts.OptimType.AdamW,
        "additional_output_names": [Y],
    }
    artifacts.generate_artifacts(MODEL, artifact_directory=folder, **{**settings, **changes})
    return folder


def data(rows=96, seed=0):
    """Inputs and targets that the model can fit."""
    x = np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)
    return x, np.tanh(x[:, :2] - x[:, 2:])


def values(trainer):
    return {name: parameter.data.copy() for name, parameter in trainer.state.parameters}
