"""Clipping by the training engine: what the C class does, in an order that stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnxruntime import SessionOptions
from onnxruntime.capi import _pybind_state as native

from blockdsl import optim
from blockdsl.api import CheckpointState
from blockdsl.backend.training.clipping import clip
from tests.runs import Run, forward, generate, normal, weight

ROOT = Path(__file__).parents[2]
LAYERS = 6
OPTIMIZERS = {
    "AdamW": optim.AdamW(weight_decay=0.01, clip_grad=optim.ClipGradNorm(0.05)),
    "SGD": optim.SGD(clip_grad=optim.ClipGradNorm(0.05)),
}
BATCH = normal(8, 5), normal(8, 5)
STEPS = 5


def net(x):
    for i in range(LAYERS):
        x = (x @ weight(f"w{i}", 5, 5) + weight(f"b{i}", 5)).tanh()
    return x


@pytest.fixture(params=OPTIMIZERS)
def folder(request, tmp_path):
    return generate(tmp_path, forward(net, ("n", 5)), optimizer=OPTIMIZERS[request.param])


def trained(folder, engine="training"):
    run = Run(folder, engine)
    run.optimizer.set_learning_rate(0.1)
    for _ in range(STEPS):
        run.step(*BATCH)
    return run.values()


def trained_by_c(folder):
    state = native.load_checkpoint(str(folder / "checkpoint"))
    device, options = native.OrtDevice(0, 0, 0), SessionOptions()
    module = native.Module(str(folder / "training_model.onnx"), state, None, device, options)
    optimizer = native.Optimizer(str(folder / "optimizer_model.onnx"), state, device, options)
    optimizer.set_learning_rate(0.1)
    for _ in range(STEPS):
        module.train_step(list(BATCH), native.OrtValueVector())
        optimizer.optimizer_step()
        module.lazy_reset_grad()
    native.save_checkpoint(state, str(folder / "by_c"), True)
    loaded = CheckpointState.load_checkpoint(folder / "by_c")
    return {name: parameter.data for name, parameter in loaded.parameters}


def test_clips_as_the_c_class_and_the_session_engine_do(folder):
    found, before = trained(folder), Run(folder, "training").values()
    for expected in (trained_by_c(folder), trained(folder, "session")):
        for name, value in found.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-6)
            assert not np.allclose(value, before[name], atol=1e-5)


def test_every_process_gets_the_same_bits(folder):
    program = (
        "from tests.training.test_clipping import *;"
        "print({n: v.tobytes() for n, v in trained(Path(sys.argv[1])).items()})"
    )
    command = [sys.executable, "-c", program, str(folder)]
    done = [subprocess.run(command, cwd=ROOT, capture_output=True, check=True) for _ in range(4)]
    assert len({process.stdout for process in done}) == 1


@pytest.mark.parametrize(("largest", "factor"), [(10, 2), (20, 4), (25, 5), (50, 5)])
def test_norm(largest, factor):
    gradients = [np.float32([[3, 0]]) * 5, np.float32(4) * np.ones(1, np.float32) * 5]
    clip(gradients, largest)
    np.testing.assert_allclose(gradients[0], np.float32([[3, 0]]) * factor, rtol=1e-6)
    np.testing.assert_allclose(gradients[1], np.float32([4]) * factor, rtol=1e-6)
