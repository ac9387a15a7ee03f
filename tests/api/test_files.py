"""Artifacts of all kinds of wrongness, devices, options, and the exported model."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from blockdsl.api import CheckpointState, Module, Optimizer
from blockdsl.errors import (
    BlockError,
    EngineError,
    UnknownNameError,
)
from tests.api.mlp import batch
from tests.api.runs import Trained, train, values


def test_export_model_for_inferencing(run: Trained, tmp_path: Path) -> None:
    _, module, optimizer = run
    train(module, optimizer)
    x, labels = batch()
    for mode in (True, False):
        path = tmp_path / f"{mode}.onnx"
        module.train(mode).export_model_for_inferencing(path, ["output", "r"])
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        assert [i.name for i in session.get_inputs()] == ["x"]
        assert [o.name for o in session.get_outputs()] == ["output", "r"]
        expected = module.eval()(x, labels)[1]
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-5, atol=1e-6)


def test_export_without_an_eval_model(
    run: Trained, files: Path, engine: str, tmp_path: Path
) -> None:
    state, module, optimizer = run
    train(module, optimizer)
    alone = Module(files / "training_model.onnx", state)
    for name, other in (("one", module), ("two", alone)):
        other.export_model_for_inferencing(tmp_path / name, ["output"])
    one, two = (onnx.load(tmp_path / name) for name in ("one", "two"))
    assert one.graph == two.graph


def test_wrong_exports(run: Trained, files: Path, tmp_path: Path) -> None:
    state, module, _ = run
    path = tmp_path / "inference.onnx"
    with pytest.raises(UnknownNameError, match="Did you mean 'output'"):
        module.export_model_for_inferencing(path, ["outptu"])
    with pytest.raises(RuntimeError, match="Expected a non empty vector"):
        module.export_model_for_inferencing(path, [])
    with pytest.raises(TypeError, match="list of strings"):
        module.export_model_for_inferencing(path, "output")
    alone = Module(files / "training_model.onnx", state)
    for wrong in ("outptu", "fc1.weight_grad.accumulation.out", "lazy_reset_grad"):
        with pytest.raises(UnknownNameError, match=r"The model puts out '\S+', 'output'"):
            alone.export_model_for_inferencing(path, [wrong])
    assert not path.exists()


def test_evaluation_needs_an_eval_model(files: Path, engine: str) -> None:
    state = CheckpointState.load_checkpoint(files / "checkpoint", engine=engine)
    module = Module(files / "training_model.onnx", state).eval()
    with pytest.raises(EngineError, match=r"Eval model was not provided\. Cannot eval"):
        module(*batch())


def test_wrong_models(files: Path, engine: str, tmp_path: Path) -> None:
    state = CheckpointState.load_checkpoint(files / "checkpoint", engine=engine)
    training, junk = files / "training_model.onnx", tmp_path / "junk.onnx"
    junk.write_bytes(b"\xffjunk" * 10)
    for wrong in (tmp_path / "nowhere.onnx", tmp_path, junk):
        with pytest.raises(BlockError, match=wrong.name):
            Module(wrong, state)
    for wrong in (tmp_path / "nowhere.onnx", junk):
        with pytest.raises(BlockError, match=wrong.name):
            Module(training, state, wrong)
        with pytest.raises(BlockError, match=wrong.name):
            Optimizer(wrong, Module(training, state))


def test_models_of_the_wrong_kind(files: Path, engine: str) -> None:
    state = CheckpointState.load_checkpoint(files / "checkpoint", engine=engine)
    training, evaluation = files / "training_model.onnx", files / "eval_model.onnx"
    with pytest.raises(BlockError, match="is not a training model"):
        Module(evaluation, state)
    with pytest.raises(BlockError, match=r"is a training model|cannot run the eval model"):
        Module(training, state, training)
    with pytest.raises(BlockError, match="optimizer model"):
        Optimizer(training, Module(training, state))


@pytest.mark.parametrize("device", ["tpu", "gpu:x", "cpu:1", ""])
def test_unsupported_devices(files: Path, engine: str, device: str) -> None:
    state = CheckpointState.load_checkpoint(files / "checkpoint", engine=engine)
    with pytest.raises(EngineError, match="Unsupported device type"):
        Module(files / "training_model.onnx", state, device=device)


def test_cpu_has_a_number(files: Path, engine: str) -> None:
    state = CheckpointState.load_checkpoint(files / "checkpoint", engine=engine)
    assert Module(str(files / "training_model.onnx"), state, device="cpu:0")(*batch())


@pytest.mark.skipif(
    "CUDAExecutionProvider" in ort.get_available_providers(), reason="needs a runtime for CPUs"
)
def test_a_device_that_the_runtime_does_not_know_leaves_the_state_as_it_is(
    files: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = CheckpointState.load_checkpoint(files / "checkpoint", engine=engine)
    with pytest.raises(EngineError, match="needs ONNX Runtime's CUDAExecutionProvider"):
        Module(files / "training_model.onnx", state, device="cuda")
    if engine == "session":
        monkeypatch.setattr("blockdsl.backend.session.module.require_provider", lambda device: None)
        with pytest.raises(EngineError, match=r"of \d+ bytes cannot be put on 'cuda': "):
            Module(files / "training_model.onnx", state, device="cuda")
    assert Module(files / "training_model.onnx", state)(*batch())


@pytest.mark.cuda
@pytest.mark.skipif(
    "CUDAExecutionProvider" not in ort.get_available_providers(), reason="needs CUDA"
)
def test_cuda(files: Path) -> None:
    state = CheckpointState.load_checkpoint(files / "checkpoint")
    module = Module(files / "training_model.onnx", state, files / "eval_model.onnx", device="cuda")
    optimizer = Optimizer(files / "optimizer_model.onnx", module)
    assert module.get_contiguous_parameters().device_name() == "Cuda"
    before = values(state)
    train(module, optimizer)
    assert not np.array_equal(state.parameters["fc1.weight"].data, before["fc1.weight"])


def test_session_options_reach_the_engine(files: Path, engine: str, tmp_path: Path) -> None:
    state = CheckpointState.load_checkpoint(files / "checkpoint", engine=engine)
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    Module(files / "training_model.onnx", state, session_options=options)
    assert (tmp_path / "optimized.onnx").exists()


def test_paths_are_paths(run: Trained, engine: str, tmp_path: Path) -> None:
    state, module, _ = run
    uses = {
        "training model": lambda: Module(5, state),  # type: ignore[arg-type]
        "checkpoint": lambda: CheckpointState.load_checkpoint(5, engine=engine),  # type: ignore[arg-type]
        "optimizer model": lambda: Optimizer(5, module),  # type: ignore[arg-type]
        "inference model": lambda: module.export_model_for_inferencing(5, ["output"]),  # type: ignore[arg-type]
    }
    for what, use in uses.items():
        with pytest.raises(TypeError, match=f"The {what} is given by its path, not b"):
            use()
    CheckpointState.save_checkpoint(state, os.fsencode(tmp_path / "saved"))
    assert (tmp_path / "saved").is_file()
