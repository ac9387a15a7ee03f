"""The training engine: what onnxruntime-training's C classes do, and what they must not do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from blockdsl.api import CheckpointState, LinearLRScheduler, Module, Optimizer
from blockdsl.backend import checkpoint as codec
from blockdsl.errors import ArtifactError, EngineError, StateError
from tests import session_models
from tests.api import mlp
from tests.engines import available_engines
from tests.session_models import Artifacts, Reference

if "training" not in available_engines():
    pytest.skip("needs onnxruntime-training", allow_module_level=True)

from blockdsl.backend.providers import CPU
from blockdsl.backend.training import TrainingState, UnsupportedTypeError
from blockdsl.backend.training.native import native, native_device, reason, reporting

BATCH = session_models.batch


@pytest.fixture(scope="module")
def adamw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated artifacts, whose optimizer the C class knows."""
    return mlp.write_artifacts(tmp_path_factory.mktemp("adamw"), "AdamW")


@pytest.fixture
def files(tmp_path: Path) -> Artifacts:
    return session_models.write(tmp_path)


def open_run(
    files: Artifacts, checkpoint: Path | None = None, engine: str = "training"
) -> tuple[CheckpointState, Module, Optimizer]:
    state = CheckpointState.load_checkpoint(checkpoint or files.checkpoint, engine=engine)
    module = Module(files.training, state, files.eval)
    return state, module, Optimizer(files.optimizer, module)


def train(module: Module, optimizer: Optimizer, steps: range) -> list[float]:
    losses = []
    for seed in steps:
        losses.append(float(module(*BATCH(seed))[0]))
        optimizer.step()
        module.lazy_reset_grad()
    return losses


def values(state: CheckpointState) -> dict[str, np.ndarray]:
    return {name: parameter.data.copy() for name, parameter in state.parameters}


def test_nothing_imports_torch() -> None:
    code = (
        "import sys, blockdsl.api, blockdsl.backend.training as t; t.native.native();"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# An optimizer that the C class does not know, and running statistics


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


def test_running_statistics_are_no_output(files: Artifacts, tmp_path: Path) -> None:
    model = onnx.load(files.training)
    for node in model.graph.node:
        for i, name in enumerate(node.output):
            if name == "running_grad.accumulation.out":
                node.output[i] = "running.accumulation.out"
    model.graph.output[-1].name = "running.accumulation.out"
    onnx.save(model, files.training)
    state, module, _ = open_run(files)
    assert module.output_names() == ["loss", "y"]
    assert len(module(*BATCH())) == 2
    assert np.abs(state.parameters["running"].data).max() > 0
    assert state.parameters["running"].grad is None


def test_a_nominal_state_takes_a_plain_optimizer(files: Artifacts, tmp_path: Path) -> None:
    complete = session_models.checkpoint()
    nominal = codec.Checkpoint(complete.trainable, complete.frozen, nominal=True)
    codec.save(nominal, tmp_path / "nominal")
    _, module, optimizer = open_run(files, tmp_path / "nominal")
    _, full, other = open_run(files)
    module.copy_buffer_to_parameters(full.get_contiguous_parameters(), trainable_only=False)
    assert train(module, optimizer, range(3)) == train(full, other, range(3))


# Against the C classes themselves


def test_the_engine_computes_what_the_c_classes_do(adamw: Path) -> None:
    c_state = native().load_checkpoint(str(adamw / "checkpoint"))
    device, options = native_device(CPU), ort.SessionOptions()
    c_module = native().Module(str(adamw / "training_model.onnx"), c_state, None, device, options)
    c_optimizer = native().Optimizer(str(adamw / "optimizer_model.onnx"), c_state, device, options)
    state = CheckpointState.load_checkpoint(adamw / "checkpoint", engine="training")
    module = Module(adamw / "training_model.onnx", state)
    optimizer = Optimizer(adamw / "optimizer_model.onnx", module)
    for seed in range(3):
        fetches = native().OrtValueVector()
        c_module.train_step(list(mlp.batch(seed)), fetches)
        c_optimizer.optimizer_step()
        c_module.lazy_reset_grad()
        assert float(module(*mlp.batch(seed))[0]) == float(fetches[0].numpy())
        optimizer.step()
        module.lazy_reset_grad()
    for name, parameter in state.parameters:
        np.testing.assert_array_equal(
            parameter.data, c_state.get_parameter(name).data.numpy(), strict=True
        )


def test_the_c_classes_read_our_checkpoints(adamw: Path, tmp_path: Path) -> None:
    state = CheckpointState.load_checkpoint(adamw / "checkpoint", engine="training")
    module = Module(adamw / "training_model.onnx", state)
    optimizer = Optimizer(adamw / "optimizer_model.onnx", module)
    for seed in range(3):
        module(*mlp.batch(seed))
        optimizer.step()
    state.properties["epoch"] = 3
    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    c_state = native().load_checkpoint(str(tmp_path / "saved"))
    assert c_state.get_property("epoch") == 3
    device, options = native_device(CPU), ort.SessionOptions()
    c_module = native().Module(str(adamw / "training_model.onnx"), c_state, None, device, options)
    c_optimizer = native().Optimizer(str(adamw / "optimizer_model.onnx"), c_state, device, options)
    module.lazy_reset_grad()
    c_module.train_step(list(mlp.batch(9)), native().OrtValueVector())
    c_optimizer.optimizer_step()
    module(*mlp.batch(9))
    optimizer.step()
    for name, parameter in state.parameters:
        np.testing.assert_array_equal(parameter.data, c_state.get_parameter(name).data.numpy())


# What the C classes do not survive or do not say


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


def test_models_are_not_confused(files: Artifacts, adamw: Path) -> None:
    state = CheckpointState.load_checkpoint(files.checkpoint, engine="training")
    for models, message in {
        (files.eval, files.eval): "not a training model: it has no input 'lazy_reset_grad'",
        (files.training, files.training): "is a training model: it has an input",
        (adamw / "training_model.onnx", None): "has no parameter 'fc.bias', which the checkpoint",
        (files.training, adamw / "eval_model.onnx"): "has no parameter 'fc.bias'",
    }.items():
        with pytest.raises(ArtifactError, match=message):
            Module(models[0], state, models[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.trainable.update(weight=np.zeros((2, 2), np.float32)), r"float32\[2, 2\]"),
        (lambda c: c.frozen.update(scale=np.zeros(2)), r"float64\[2\]"),
        (lambda c: c.trainable.pop("weight"), "trains a parameter 'weight', which the checkp"),
        (lambda c: c.trainable.update(scale=c.frozen.pop("scale")), "has no gradient of it"),
    ],
)
def test_checkpoints_of_other_models_are_refused(
    files: Artifacts, tmp_path: Path, change: Any, message: str
) -> None:
    checkpoint = session_models.checkpoint()
    change(checkpoint)
    codec.save(checkpoint, tmp_path / "changed")
    with pytest.raises(ArtifactError, match=message):
        open_run(files, tmp_path / "changed")


def test_double_precision_goes_to_the_session_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = session_models.write(tmp_path, "double", np.float64)
    monkeypatch.delenv("BLOCKDSL_ENGINE", raising=False)
    assert CheckpointState.load_checkpoint(files.checkpoint).engine == "session"
    message = "float32 parameters only; 'weight' is float64.*engine='session'"
    with pytest.raises(UnsupportedTypeError, match=message):
        CheckpointState.load_checkpoint(files.checkpoint, engine="training")
    monkeypatch.setenv("BLOCKDSL_ENGINE", "training")
    with pytest.raises(UnsupportedTypeError, match=message):
        CheckpointState.load_checkpoint(files.checkpoint)


def test_a_failure_in_a_kernel_is_reported_in_words(files: Artifacts) -> None:
    model = onnx.load(files.training)
    for value in model.graph.input[:2]:
        value.type.tensor_type.shape.dim[0].ClearField("dim_param")
    onnx.save(model, files.training)
    _, module, _ = open_run(files)
    (x, _), (_, target) = BATCH(size=4), BATCH(size=3)
    with pytest.raises(EngineError, match="step of the training model failed in onnx") as error:
        module(x, target)
    assert "onnxruntime_src" not in str(error.value)


def test_reasons_leave_out_where_in_the_source() -> None:
    for text, expected in {
        "/x/a.cc:12 void f(int) [ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Bad.": "Bad.",
        "/x/a.cc:12 void f(g<h>) a == b was false. They differ.": "They differ.",
        "Non-zero status. Status Message: /x/a.cc:3 f(int) a > 0 was false. Small": "Small",
        "plain": "plain",
        "": "RuntimeError",
    }.items():
        assert reason(RuntimeError(text)) == expected
    with (
        pytest.raises(EngineError, match="Doing it failed in onnxruntime: plain"),
        reporting("Doing it"),
    ):
        raise RuntimeError("plain")
    with pytest.raises(StateError, match="ours"), reporting("Doing it"):
        raise StateError("ours")


def test_a_save_that_dies_leaves_the_old_checkpoint(
    adamw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = CheckpointState.load_checkpoint(adamw / "checkpoint", engine="training")
    module = Module(adamw / "training_model.onnx", state)
    optimizer = Optimizer(adamw / "optimizer_model.onnx", module)
    path = tmp_path / "saved"
    CheckpointState.save_checkpoint(state, path, include_optimizer_state=True)
    before = path.read_bytes()
    module(*mlp.batch())
    optimizer.step()

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", die)
    with pytest.raises(KeyboardInterrupt):
        CheckpointState.save_checkpoint(state, path, include_optimizer_state=True)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["saved"]


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


# Models in ONNX Runtime's own format


def test_models_in_the_ort_format(files: Artifacts, tmp_path: Path) -> None:
    from blockdsl.backend.ort_format import convert_to_ort

    paths = [convert_to_ort(path) for path in (files.training, files.eval)]
    state = CheckpointState.load_checkpoint(files.checkpoint, engine="training")
    module = Module(paths[0], state, paths[1])
    _, other, _ = open_run(files)
    x, target = BATCH()
    np.testing.assert_allclose(module(x, target)[0], other(x, target)[0], rtol=1e-6)
    np.testing.assert_allclose(module.eval()(x, target)[0], other(x, target)[0], rtol=1e-6)
    with pytest.raises(RuntimeError, match=r"float32\[batch, 3\] but was given float64\[4, 3\]"):
        module(x.astype(np.float64), target)
    with pytest.raises(EngineError, match=r"in the \.ort format, whose graph is fixed"):
        module.export_model_for_inferencing(tmp_path / "x.onnx", ["centred"])
