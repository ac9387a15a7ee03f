"""The training engine: what the C classes do, and what they must not do."""

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

from blockdsl.api import CheckpointState, Module, Optimizer
from blockdsl.backend import checkpoint as codec
from blockdsl.backend.providers import CPU
from blockdsl.backend.reason import reason
from blockdsl.backend.training.native import native, native_device, reporting
from blockdsl.errors import ArtifactError, EngineError, StateError, UnsupportedTypeError
from tests import session_models
from tests.api import mlp
from tests.session_models import Artifacts
from tests.training.runs import BATCH, open_run, train


def test_nothing_imports_torch() -> None:
    code = (
        "import sys, blockdsl.api, blockdsl.backend.training as t; t.native.native();"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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


def test_a_frozen_parameter_need_not_be_float32(files: Artifacts, tmp_path: Path) -> None:
    for path in (files.training, files.eval):
        model = onnx.load(path)
        scale = next(v for v in model.graph.input if v.name == "scale")
        scale.name = "scale64"
        scale.type.tensor_type.elem_type = onnx.TensorProto.INT64
        cast = onnx.helper.make_node("Cast", ["scale64"], ["scale"], to=onnx.TensorProto.FLOAT)
        model.graph.node.insert(0, cast)
        onnx.save(model, path)
    checkpoint = session_models.checkpoint()
    del checkpoint.frozen["scale"]
    checkpoint.frozen["scale64"] = np.array([2, 3])
    codec.save(checkpoint, files.checkpoint)
    state, module, optimizer = open_run(files)
    before = module.get_contiguous_parameters()
    assert before.shape() == [module.get_parameters_size(trainable_only=False)]
    train(module, optimizer, range(2))
    module.copy_buffer_to_parameters(before, trainable_only=False)
    np.testing.assert_array_equal(module.get_contiguous_parameters().numpy(), before.numpy())
    np.testing.assert_array_equal(state.parameters["scale64"].data, [2, 3], strict=True)
