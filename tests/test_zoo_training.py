"""Whole models, exported by PyTorch: training runs lose what PyTorch's runs lose."""

import numpy as np
import pytest

import blockdsl
from blockdsl import artifacts, optim
from blockdsl.api import CheckpointState, Module, Optimizer
from tests.zoo import ENTRIES


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
        requires_grad=entry.parameters,
        loss=ZooLoss(entry),
        optimizer=optim.AdamW(
            mode="torch",
            betas=tuple(entry.optimizer["betas"]),
            eps=entry.optimizer["eps"],
            weight_decay=entry.optimizer["weight_decay"],
        ),
        artifact_directory=tmp_path,
    )
    losses, state = losses_of(
        entry, tmp_path, engine, entry.comparable_steps, entry.optimizer["lr"]
    )
    golden = entry.golden["losses"][: entry.comparable_steps]
    np.testing.assert_allclose(losses, golden, rtol=1e-3)
    assert losses[0] == pytest.approx(entry.golden["loss0"][0], rel=1e-4)
    if entry.comparable_steps == len(entry.golden["losses"]):
        check_statistics(entry, state)


def losses_of(entry, folder, engine, steps, learning_rate=1e-3):
    """The losses of a run over the artifacts in a folder, and the state after it."""
    state = CheckpointState.load_checkpoint(folder / "checkpoint", engine=engine)
    module = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
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
    """The running statistics are those of the ONNX operator after the same run."""
    for key, golden in entry.golden.items():
        if key.startswith("bn_onnx."):
            found = state.parameters[key.removeprefix("bn_onnx.")].data
            np.testing.assert_allclose(found, golden, rtol=1e-3, atol=1e-5)
