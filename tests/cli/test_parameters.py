"""The command line says what is trained, in `generate`, in `info` and in its errors."""

import numpy as np
import onnx
import pytest
from onnx import helper
from typer.testing import CliRunner

from blockdsl.cli import app
from tests.placed import PLACES, placed

rng = np.random.default_rng(5)
ARRAYS = {
    "w": rng.normal(size=(4, 3)).astype(np.float32),
    "b": np.float32([0.3, -0.2, 0.1]),
    "half": np.float32(0.5),
}
STEPS = [
    helper.make_node("MatMul", ["x", "w"], ["h"]),
    helper.make_node("Add", ["h", "b"], ["s"]),
    helper.make_node("Mul", ["s", "half"], ["y"]),
]
LINE = "rains 2 of 3 tensors, 15 of 16 values; left as constants: half (1 value: constant)"


def run(*arguments):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(placed(STEPS, ARRAYS, "initializer"), "model.onnx")


@pytest.mark.usefixtures("here")
def test_generate_and_info_say_the_same():
    # Nothing said what was trained.
    shown, _ = run("generate", "model.onnx", "--loss", "mse", "--output", "run")
    assert shown.splitlines()[0] == f"T{LINE}"
    model, _ = run("info", "model.onnx")
    assert f"training: t{LINE}" in model
    assert "weight: the weight of MatMul" in model
    assert "constant: a number of Mul" in model
    artifacts, _ = run("info", "run")
    assert f"training: t{LINE}" in artifacts


@pytest.mark.usefixtures("here")
def test_info_of_artifacts_names_what_is_frozen():
    run("generate", "model.onnx", "--loss", "mse", "--output", "run", "--freeze", "b")
    shown, _ = run("info", "run")
    assert "trains 1 of 3 tensors, 12 of 16 values; frozen: 1 (3 values)" in shown


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("place", PLACES)
def test_info_shows_parameters_in_every_place(place):
    onnx.save(placed(STEPS, ARRAYS, place), "placed.onnx")
    shown, _ = run("info", "placed.onnx")
    assert "weight: the weight of MatMul" in shown
    assert "bias: the bias after a product with a weight" in shown


@pytest.mark.usefixtures("here")
@pytest.mark.filterwarnings("default::blockdsl.errors.BlockWarning")
def test_warnings_of_generate_are_lines():
    _, errors = run(
        *("generate", "model.onnx", "--loss", "mse", "--output", "run", "--freeze", "bn.count")
    )
    assert errors.startswith("frozen_params: Node arg bn.count is not found in the graph.")
    assert len(errors.splitlines()) == 1
