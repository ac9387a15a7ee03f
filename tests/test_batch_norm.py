"""Batch normalisation in training: the same run at every opset, whatever kernels runtimes have."""

import numpy as np
import pytest

import blockdsl
from blockdsl import artifacts, blocks
from blockdsl.api import CheckpointState, Module, Optimizer

ROWS = np.random.default_rng(0).normal(1, 2, size=(16, 2, 6, 6)).astype(np.float32)
LABELS = np.random.default_rng(1).integers(0, 3, 16)


def trained(opset, engine, folder):
    """The losses of three steps, the loss by the evaluation model, and the running means."""
    with blockdsl.empty_base(opset_version=opset) as handle:
        network = blocks.Sequential(
            blocks.Conv(2, 4, 3),
            blocks.BatchNorm(4),
            blocks.Relu(),
            blocks.GlobalAveragePool(),
            blocks.Flatten(),
            blocks.Linear(4, 3),
        )
        scores = network(blockdsl.input("x", shape=("batch", 2, 6, 6)))
        blockdsl.graph.current().set_outputs([scores])
    artifacts.generate_artifacts(
        handle.model,
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory=folder,
    )
    state = CheckpointState.load_checkpoint(folder / "checkpoint", engine=engine)
    module = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
    optimizer = Optimizer(folder / "optimizer_model.onnx", module)
    losses = []
    for _ in range(3):
        losses.append(float(module(ROWS, LABELS)))
        optimizer.step()
        module.lazy_reset_grad()
    losses.append(float(module.eval()(ROWS, LABELS)))
    (mean,) = (p.data.copy() for name, p in state.parameters if "running_mean" in name)
    return losses, mean


@pytest.mark.parametrize("opset", [9, 12, 13, 14, 15])
def test_trains_alike_at_every_opset(opset, engine, tmp_path):
    losses, mean = trained(opset, engine, tmp_path)
    expected, expected_mean = trained(17, engine, tmp_path)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-4, atol=1e-6)
    assert np.abs(mean).max() > 0.01
