"""Whole models, exported by PyTorch: they train and lose what PyTorch does, by default."""

import numpy as np
import pytest

import blockdsl
from blockdsl import artifacts, optim
from blockdsl.api import CheckpointState, Module, Optimizer
from tests.engines import without_layouts
from tests.zoo import ENTRIES

STEPS_BEFORE_A_KINK = {"hf_mobilenetv2.legacy": 3}
"""Steps after which a run may part from PyTorch's: here one ReLU6 of the last layer lies so close
to its kink (5e-5 of its range) that rounding decides on which side it is, and with it 3 % of a
gradient. The gradients at the start are compared in full by `test_zoo.py`."""


class ZooLoss(blockdsl.Block):
    """The loss of an entry, on the named outputs of its model."""

    def __init__(self, entry):
        self._entry = entry

    def build(self, *outputs):
        by_name = {str(output): output for output in outputs}
        return self._entry.build_loss(by_name.__getitem__)


def trainable(entry):
    """A tied weight that the file holds twice trains as one only where PyTorch's does."""
    return not entry.split_parameters


@pytest.mark.parametrize("entry", [e for e in ENTRIES if trainable(e)], ids=str)
def test_adamw_trajectory(entry, engine, tmp_path):
    artifacts.generate_artifacts(
        entry.model,
        loss=ZooLoss(entry),
        optimizer=optim.AdamW(
            mode="torch",
            betas=tuple(entry.optimizer["betas"]),
            eps=entry.optimizer["eps"],
            weight_decay=entry.optimizer["weight_decay"],
        ),
        artifact_directory=tmp_path,
    )
    steps = STEPS_BEFORE_A_KINK.get(entry.name, entry.comparable_steps)
    losses, state = losses_of(entry, tmp_path, engine, steps, entry.optimizer["lr"])
    trained = {name for name, parameter in state.parameters if parameter.requires_grad}
    assert trained == set(entry.parameters)
    golden = entry.golden["losses"][:steps]
    np.testing.assert_allclose(losses, golden, rtol=1e-3)
    assert losses[0] == pytest.approx(entry.golden["loss0"][0], rel=1e-4)
    if steps == len(entry.golden["losses"]):
        check_statistics(entry, state)


def losses_of(entry, folder, engine, steps, learning_rate=1e-3):
    """The losses of a run over the artifacts in a folder, and the state after it."""
    state = CheckpointState.load_checkpoint(folder / "checkpoint", engine=engine)
    module = Module(
        folder / "training_model.onnx",
        state,
        folder / "eval_model.onnx",
        session_options=without_layouts(),
    )
    optimizer = Optimizer(folder / "optimizer_model.onnx", module)
    optimizer.set_learning_rate(learning_rate)
    losses = []
    for step in range(steps):
        feeds = entry.feeds(step % 2)
        losses.append(float(module(*(feeds[name] for name in module.input_names()))))
        optimizer.step()
        module.lazy_reset_grad()
    return losses, state


def check_statistics(entry, state):
    """The running statistics are those of the ONNX operator after the same run.

    A bias before batch normalisation has no gradient but rounding, whose sign AdamW follows: it
    moves the running mean by up to the learning rate a step.
    """
    drift = entry.optimizer["lr"] * entry.comparable_steps if entry.null_gradient else 0
    for key, golden in entry.golden.items():
        if key.startswith("bn_onnx."):
            found = state.parameters[key.removeprefix("bn_onnx.")].data
            atol = max(drift, 3e-3 * np.abs(golden).max())
            np.testing.assert_allclose(found, golden, rtol=1e-3, atol=atol)
