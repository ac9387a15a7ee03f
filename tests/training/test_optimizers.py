"""Optimizers on the training engine, and runs that move from one engine to the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from blockdsl.api import CheckpointState, LinearLRScheduler, Module, Optimizer
from blockdsl.backend import checkpoint as codec
from blockdsl.backend.providers import CPU
from blockdsl.backend.training import TrainingState
from blockdsl.backend.training.native import native, native_device
from blockdsl.errors import EngineError, StateError
from tests import session_models
from tests.api import mlp
from tests.session_models import Artifacts, Reference
from tests.training.runs import BATCH, generated_run, open_run, train, values


def test_a_plain_optimizer_trains_the_state(files: Artifacts) -> None:
    state, module, optimizer = open_run(files)
    reference = Reference.of(session_models.checkpoint())
    optimizer.set_learning_rate(0.1)
    for seed in range(4):
        loss = module(*BATCH(seed))[0]
        np.testing.assert_allclose(loss, reference.train(*BATCH(seed)), rtol=1e-5)
        optimizer.step()
        module.lazy_reset_grad()
        reference.step(0.1)
        expected = {
            "weight": reference.weight,
            "fc.bias": reference.bias,
            "scale": reference.scale,
            "running": reference.running,
        }
        for name, value in values(state).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-6)
    assert optimizer.step_count == 4


def test_a_plain_optimizer_resumes_bit_for_bit(files: Artifacts, tmp_path: Path) -> None:
    state, module, optimizer = open_run(files)
    optimizer.set_learning_rate(0.3)
    train(module, optimizer, range(3))
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    other_state, other, resumed = open_run(files, tmp_path / "saved")
    assert resumed.step_count == 3
    assert resumed.get_learning_rate() == np.float32(0.3)
    assert train(module, optimizer, range(3, 6)) == train(other, resumed, range(3, 6))
    for name, value in values(state).items():
        np.testing.assert_array_equal(value, other_state.parameters[name].data)


@pytest.mark.parametrize("engines", [("training", "session"), ("session", "training")])
def test_either_engine_resumes_what_the_other_began(
    files: Artifacts, tmp_path: Path, engines: tuple[str, str]
) -> None:
    state, module, optimizer = open_run(files, engine=engines[0])
    optimizer.set_learning_rate(0.3)
    train(module, optimizer, range(3))
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    other_state, other, resumed = open_run(files, tmp_path / "saved", engine=engines[1])
    np.testing.assert_allclose(
        train(module, optimizer, range(3, 8)), train(other, resumed, range(3, 8)), rtol=1e-5
    )
    for name, value in values(state).items():
        np.testing.assert_allclose(value, other_state.parameters[name].data, rtol=1e-4, atol=1e-6)


def test_a_nominal_state_takes_a_plain_optimizer(files: Artifacts, tmp_path: Path) -> None:
    complete = session_models.checkpoint()
    nominal = codec.Checkpoint(complete.trainable, complete.frozen, nominal=True)
    codec.save(nominal, tmp_path / "nominal")
    _, module, optimizer = open_run(files, tmp_path / "nominal")
    _, full, other = open_run(files)
    module.copy_buffer_to_parameters(full.get_contiguous_parameters(), trainable_only=False)
    assert train(module, optimizer, range(3)) == train(full, other, range(3))


@pytest.mark.parametrize("engines", [("training", "session"), ("session", "training")])
def test_either_engine_resumes_adamw_where_the_other_stopped(
    adamw: Path, tmp_path: Path, engines: tuple[str, str]
) -> None:
    state, module, optimizer = generated_run(adamw, adamw / "checkpoint", engines[0])
    optimizer.set_learning_rate(0.02)

    def steps(module: Module, optimizer: Optimizer, first: int) -> list[float]:
        losses = []
        for seed in range(first, first + 5):
            losses.append(float(module(*mlp.batch(seed))[0]))
            optimizer.step()
            module.lazy_reset_grad()
        return losses

    steps(module, optimizer, 0)
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    other_state, other, resumed = generated_run(adamw, tmp_path / "saved", engines[1])
    assert resumed.step_count == 5
    np.testing.assert_allclose(steps(module, optimizer, 5), steps(other, resumed, 5), rtol=1e-5)
    for name, value in values(state).items():
        np.testing.assert_allclose(value, other_state.parameters[name].data, rtol=1e-4, atol=1e-6)


def test_the_state_of_another_optimizer_is_refused(files: Artifacts, tmp_path: Path) -> None:
    saved = codec.Checkpoint(
        session_models.checkpoint().trainable,
        session_models.checkpoint().frozen,
        groups={"group0": codec.OptimizerGroup("group0", 1, 0.1, {"weight": {"m": np.ones(1)}})},
    )
    codec.save(saved, tmp_path / "saved")
    with pytest.raises(EngineError, match="state of another optimizer"):
        open_run(files, tmp_path / "saved")


def test_adamw_refuses_the_state_of_sgd(adamw: Path, tmp_path: Path) -> None:
    saved = codec.load(adamw / "checkpoint")
    slots = {name: {"momentum0": np.zeros_like(w)} for name, w in saved.trainable.items()}
    saved.groups["group0"] = codec.OptimizerGroup("group0", 1, 0.1, slots)
    codec.save(saved, tmp_path / "saved")
    state = CheckpointState.load_checkpoint(tmp_path / "saved", engine="training")
    module = Module(adamw / "training_model.onnx", state)
    with pytest.raises(StateError, match=r"has the slots \['momentum0'\], not \['momentum0', 'mo"):
        Optimizer(adamw / "optimizer_model.onnx", module)


def test_two_optimizers_over_one_state_share_its_learning_rate(adamw: Path) -> None:
    state = CheckpointState.load_checkpoint(adamw / "checkpoint", engine="training")
    module = Module(adamw / "training_model.onnx", state)
    first = Optimizer(adamw / "optimizer_model.onnx", module)
    first.set_learning_rate(0.5)
    second = Optimizer(adamw / "optimizer_model.onnx", module)
    assert second.get_learning_rate() == 0.5


def test_upstream_loses_the_learning_rate_and_we_do_not(adamw: Path, tmp_path: Path) -> None:
    state = CheckpointState.load_checkpoint(adamw / "checkpoint", engine="training")
    module = Module(adamw / "training_model.onnx", state)
    optimizer = Optimizer(adamw / "optimizer_model.onnx", module)
    LinearLRScheduler(optimizer, 0, 10, 0.25)
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    assert codec.load(tmp_path / "saved").groups["group0"].learning_rate == 0.25
    device, options = native_device(CPU), ort.SessionOptions()
    c_state = TrainingState(tmp_path / "saved").native
    native().Module(str(adamw / "training_model.onnx"), c_state, None, device, options)
    c_optimizer = native().Optimizer(str(adamw / "optimizer_model.onnx"), c_state, device, options)
    assert c_optimizer.get_learning_rate() == np.float32(0.001)


def test_moments_that_c_cannot_write_are_kept_by_a_session(
    adamw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def losses(name: str) -> list[float]:
        found, saved = [], adamw / "checkpoint"
        for round_ in range(2):  # the second goes on from what the first has saved
            state, module, optimizer = generated_run(adamw, saved, "training")
            for seed in range(3):
                found.append(float(module(*mlp.batch(seed))[0]))
                optimizer.step()
                module.lazy_reset_grad()
            assert optimizer.step_count == 3 * (round_ + 1)
            saved = tmp_path / name
            CheckpointState.save_checkpoint(state, saved, include_optimizer_state=True)
        return found

    expected = losses("native")
    monkeypatch.setattr("blockdsl.backend.training.optimizer._WRITABLE", 0)
    monkeypatch.setattr(native(), "save_checkpoint", None)
    np.testing.assert_allclose(losses("plain"), expected, rtol=1e-5)


def test_what_c_keeps_for_sgd_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = mlp.write_artifacts(tmp_path, "SGD")
    state, module, optimizer = generated_run(folder, folder / "checkpoint", "training")
    module(*mlp.batch())
    optimizer.step()
    monkeypatch.setattr(native(), "save_checkpoint", None)
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    group = codec.load(tmp_path / "saved").groups[codec.GROUP]
    assert (group.step, group.slots) == (1, {})
