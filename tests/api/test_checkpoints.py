"""Saving, loading and resuming; states from nominal checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blockdsl.api import CheckpointState, LinearLRScheduler, Module
from blockdsl.errors import (
    BlockError,
    CheckpointNotFoundError,
    EngineError,
)
from tests.api.mlp import batch
from tests.api.runs import Trained, flat, train


def test_checkpoint_round_trip(run: Trained, open_run: Any, tmp_path: Path) -> None:
    state, module, optimizer = run
    train(module, optimizer)
    CheckpointState.save_checkpoint(state, tmp_path / "new")
    again, other, _ = open_run(tmp_path / "new")
    np.testing.assert_array_equal(flat(module), flat(other))
    assert {n: p.requires_grad for n, p in again.parameters} == {
        n: p.requires_grad for n, p in state.parameters
    }


def test_a_resumed_run_continues_bit_for_bit(run: Trained, open_run: Any, tmp_path: Path) -> None:
    state, module, optimizer = run
    scheduler = LinearLRScheduler(optimizer, 2, 20, 0.05)
    for step in range(4):
        train(module, optimizer, 1, step)
        scheduler.step()
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    _, other, resumed = open_run(tmp_path / "saved")
    assert resumed.step_count == 4
    assert resumed.get_learning_rate() == optimizer.get_learning_rate()
    again = LinearLRScheduler(resumed, 2, 20, 0.05)
    for step in range(4, 8):
        assert train(module, optimizer, 1, step) == train(other, resumed, 1, step)
        scheduler.step()
        again.step()
        assert resumed.get_learning_rate() == optimizer.get_learning_rate()
    np.testing.assert_array_equal(flat(module), flat(other))


@pytest.mark.parametrize("rate", [0.05, 0.0, -0.3])
def test_a_learning_rate_set_by_hand_survives(
    run: Trained, open_run: Any, tmp_path: Path, rate: float
) -> None:
    state, _, optimizer = run
    optimizer.set_learning_rate(rate)
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    state, _, resumed = open_run(tmp_path / "saved")
    assert resumed.get_learning_rate() == np.float32(rate)
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    assert open_run(tmp_path / "saved")[2].get_learning_rate() == np.float32(rate)


def test_without_optimizer_state_the_optimizer_starts_anew(
    run: Trained, open_run: Any, tmp_path: Path
) -> None:
    state, module, optimizer = run
    optimizer.set_learning_rate(0.05)
    train(module, optimizer)
    CheckpointState.save_checkpoint(state, tmp_path / "saved")
    _, _, resumed = open_run(tmp_path / "saved")
    assert resumed.step_count == 0
    assert resumed.get_learning_rate() == np.float32(0.001)


def test_optimizer_state_survives_a_run_without_an_optimizer(
    run: Trained, open_run: Any, files: Path, engine: str, tmp_path: Path
) -> None:
    state, module, optimizer = run
    train(module, optimizer)
    CheckpointState.save_checkpoint(state, tmp_path / "a", include_optimizer_state=True)
    untouched = CheckpointState.load_checkpoint(tmp_path / "a", engine=engine)
    CheckpointState.save_checkpoint(untouched, tmp_path / "b", include_optimizer_state=True)
    _, other, resumed = open_run(tmp_path / "b")
    assert train(module, optimizer, 3, 3) == train(other, resumed, 3, 3)


def test_a_failed_save_leaves_the_old_checkpoint(run: Trained, tmp_path: Path) -> None:
    state, module, optimizer = run
    path = tmp_path / "saved"
    CheckpointState.save_checkpoint(state, path)
    before = path.read_bytes()
    train(module, optimizer)
    with pytest.raises(BlockError, match="folder"):
        CheckpointState.save_checkpoint(state, tmp_path / "nowhere" / "saved", True)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["saved"]


def test_missing_and_damaged_checkpoints(engine: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError, match="nowhere"):
        CheckpointState.load_checkpoint(tmp_path / "nowhere", engine=engine)
    (tmp_path / "junk").write_bytes(b"junk" * 100)
    with pytest.raises(RuntimeError, match="junk"):
        CheckpointState.load_checkpoint(tmp_path / "junk", engine=engine)


def test_a_state_comes_from_load_checkpoint(run: Trained, files: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="load_checkpoint"):
        CheckpointState(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="load_checkpoint"):
        Module(files / "training_model.onnx", str(files / "checkpoint"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Not a CheckpointState: a Module"):
        CheckpointState.save_checkpoint(run[1], tmp_path / "x")  # type: ignore[arg-type]


def test_an_unknown_engine(files: Path) -> None:
    with pytest.raises(EngineError, match="There is no engine"):
        CheckpointState.load_checkpoint(files / "checkpoint", engine="sesion")


def test_a_nominal_state_has_names_only(open_run: Any, tmp_path: Path) -> None:
    state, module, optimizer = open_run("nominal_checkpoint")
    assert state.nominal
    assert len(state.parameters) == 4
    assert "fc1.weight" in state.parameters
    assert module.get_parameters_size() == 192
    assert module.get_parameters_size(False) == 195
    assert module.input_names() == ["x", "labels"]
    module.lazy_reset_grad()
    state.properties["epoch"] = 1
    CheckpointState.save_checkpoint(state, tmp_path / "saved")
    again, _, _ = open_run(tmp_path / "saved")
    assert again.nominal
    assert again.properties["epoch"] == 1
    assert len(again.parameters) == 4

    one = np.zeros(16, np.float32)
    actions = {
        "Please load the parameter states first": [
            lambda: state.parameters["fc1.bias"],
            lambda: list(state.parameters),
        ],
        "Please load all the parameter states first": [
            lambda: state.parameters.__setitem__("fc1.bias", one),
        ],
        r"Please load the model parameters first\. Write": [
            lambda: module(*batch()),
            lambda: module.get_contiguous_parameters(),
            lambda: module.export_model_for_inferencing(tmp_path / "x.onnx", ["output"]),
            lambda: module.eval()(*batch()),
            optimizer.step,
            optimizer.get_learning_rate,
            lambda: optimizer.set_learning_rate(0.1),
            lambda: LinearLRScheduler(optimizer, 0, 2, 0.1),
        ],
        "all parameters need to be loaded": [
            lambda: module.copy_buffer_to_parameters(np.zeros(192, np.float32)),
        ],
    }
    for message, calls in actions.items():
        for call in calls:
            with pytest.raises(RuntimeError, match=message):
                call()
    with pytest.raises(RuntimeError, match="Expected:195, Actual:192"):
        module.copy_buffer_to_parameters(np.zeros(192, np.float32), trainable_only=False)
    assert state.nominal


def test_a_completed_nominal_state_trains_like_any_other(run: Trained, open_run: Any) -> None:
    _, module, optimizer = run
    state, other, late = open_run("nominal_checkpoint")
    other.copy_buffer_to_parameters(module.get_contiguous_parameters(), trainable_only=False)
    assert not state.nominal
    assert late.get_learning_rate() == optimizer.get_learning_rate()
    assert train(module, optimizer) == train(other, late)
    np.testing.assert_array_equal(flat(module), flat(other))
    np.testing.assert_array_equal(module.eval()(*batch())[0], other.eval()(*batch())[0])
