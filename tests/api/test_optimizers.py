"""Optimizers and learning rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blockdsl import artifacts, optim
from blockdsl.api import CheckpointState, LinearLRScheduler, Module, Optimizer
from blockdsl.errors import (
    StateError,
)
from tests.api.mlp import FROZEN, TRAINABLE, batch, mlp
from tests.api.runs import Trained, values


def test_a_step_changes_the_trainable_parameters(run: Trained) -> None:
    state, module, optimizer = run
    before = values(state)
    module(*batch())
    optimizer.step()
    for name, value in values(state).items():
        assert np.array_equal(value, before[name]) == (name in FROZEN)


def test_training_lowers_the_loss(run: Trained) -> None:
    _, module, optimizer = run
    optimizer.set_learning_rate(0.05)
    losses = []
    for _ in range(30):
        losses.append(module(*batch())[0])
        optimizer.step()
        module.lazy_reset_grad()
    assert losses[-1] < 0.7 * losses[0]


def test_learning_rate(run: Trained) -> None:
    _, _, optimizer = run
    assert optimizer.get_learning_rate() == np.float32(0.001)
    optimizer.set_learning_rate(0.5)
    assert optimizer.get_learning_rate() == 0.5
    optimizer.set_learning_rate(-1)
    assert optimizer.get_learning_rate() == -1


@pytest.mark.parametrize("rate", ["fast", None, float("nan"), float("inf")])
def test_a_learning_rate_is_a_finite_number(run: Trained, rate: Any) -> None:
    with pytest.raises(StateError, match="A learning rate is a"):
        run[2].set_learning_rate(rate)


def test_scheduler_follows_the_optimizer(run: Trained) -> None:
    _, module, optimizer = run
    scheduler = LinearLRScheduler(optimizer, 1, 2, 0.2)
    assert optimizer.get_learning_rate() == 0
    scheduler.step()
    assert optimizer.get_learning_rate() == 0, "no optimizer step was taken"
    module(*batch())
    optimizer.step()
    scheduler.step()
    assert optimizer.get_learning_rate() == np.float32(0.2)


# Against PyTorch: LambdaLR(optimizer, lambda step: step / max(1, warmup) if step < warmup
#                           else max(0.0, (total - step) / max(1, total - warmup)))
@pytest.mark.parametrize(
    ("warmup", "total", "rates"),
    [
        (0, 5, [0.1, 0.08, 0.06, 0.04, 0.02, 0.0, 0.0]),
        (2, 4, [0.0, 0.05, 0.1, 0.05, 0.0, 0.0]),
        (5, 0, [0.0, 0.02, 0.04, 0.06, 0.08, 0.0]),
        (4, 4, [0.0, 0.025, 0.05, 0.075, 0.0]),
        (6, 3, [0.0, 0.1 / 6, 0.2 / 6, 0.3 / 6, 0.4 / 6, 0.5 / 6, 0.0]),
    ],
)
def test_scheduler_warms_up_then_decays(
    run: Trained, warmup: int, total: int, rates: list[float]
) -> None:
    _, _, optimizer = run
    scheduler = LinearLRScheduler(optimizer, warmup, total, 0.1)
    seen = []
    for _ in rates:
        seen.append(optimizer.get_learning_rate())
        optimizer.step()
        scheduler.step()
    np.testing.assert_allclose(seen, rates, atol=1e-8)


def test_scheduler_refuses_negative_counts(run: Trained) -> None:
    with pytest.raises(StateError, match="warmup_step_count is -1"):
        LinearLRScheduler(run[2], -1, 2, 0.1)


@pytest.mark.parametrize("kind", [optim.AdamW, optim.SGD])
def test_clipping_is_in_place(kind: Any, engine: str, tmp_path: Path) -> None:
    artifacts.generate_artifacts(
        mlp(),
        requires_grad=TRAINABLE,
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=kind(clip_grad=optim.ClipGradNorm(0.1)),
        artifact_directory=tmp_path,
    )
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint", engine=engine)
    module = Module(tmp_path / "training_model.onnx", state)
    optimizer = Optimizer(tmp_path / "optimizer_model.onnx", module)
    for _ in range(2):  # the second adds to what is clipped
        module(*batch())
        optimizer.step()
    gradients = [parameter.grad for _, parameter in state.parameters if parameter.requires_grad]
    norm = np.sqrt(sum(np.square(gradient).sum() for gradient in gradients))
    np.testing.assert_allclose(norm, 0.1, rtol=1e-4)
