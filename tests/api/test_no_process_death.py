"""Nothing that the API is told ends the process, and every refusal is a BlockError.

The training engine died when a parameter was set before a module existed, and any engine when a
process ended during a step of a daemon thread; steps of two threads mixed up their results; arrays
where a name or a flag was expected gave NumPy's errors.
"""

import subprocess
import sys

import numpy as np
import pytest

from blockdsl.api import CheckpointState, Module
from blockdsl.errors import StateError
from tests.api import mlp


@pytest.mark.parametrize("group", ["types", "lifetimes", "threads"])
def test_no_call_ends_the_process(tmp_path, engine, group):
    mlp.write_artifacts(tmp_path, "AdamW")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.api.lifetimes", group, tmp_path, engine],
        capture_output=True,
        text=True,
        check=False,
    )
    calls = done.stdout.splitlines()
    assert done.returncode == 0, f"{calls[-1:]} {done.stderr[-2000:]}"
    wrong = [calls[i - 1 : i + 1] for i, line in enumerate(calls) if line.startswith("REFUSED BY")]
    assert not wrong
    assert calls[-1] == "done"


@pytest.mark.parametrize("assign", ["item", "data"])
def test_parameters_are_set_before_a_module_exists(adamw_files, engine, assign):
    state = CheckpointState.load_checkpoint(adamw_files / "checkpoint", engine=engine)
    value = np.full((16, 8), 0.25, np.float32)
    if assign == "item":
        state.parameters["fc1.weight"] = value
    else:
        state.parameters["fc1.weight"].data = value
    value[:] = 9
    assert (state.parameters["fc1.weight"].data == 0.25).all()
    module = Module(adamw_files / "training_model.onnx", state)
    x, labels = mlp.batch()
    values = {name: parameter.data for name, parameter in state.parameters}
    np.testing.assert_allclose(
        module(x, labels)[0], mlp.cross_entropy(values, x, labels), rtol=1e-5
    )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda run: run[1].train(np.ones(2)), r"mode must be True or False, .* type ndarray"),
        (lambda run: run[2].set_learning_rate(1e39), "a finite number of 32 bits, not 1e\\+39"),
        (lambda run: run[2].set_learning_rate([1]), "is a number, got an object of type list"),
        (lambda run: run[1].export_model_for_inferencing("e", [3]), "a int is among them"),
        (lambda run: run[1].export_model_for_inferencing("e", 3), "a list of strings, not a int"),
    ],
)
def test_refusals_say_what_was_expected(run, call, text):
    with pytest.raises(StateError, match=text):
        call(run)
