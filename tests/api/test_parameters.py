"""Parameters, one by one and as a flat buffer, and properties."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from blockdsl.api import CheckpointState
from blockdsl.errors import (
    StateError,
    UnknownParameterError,
)
from tests.api.mlp import FROZEN, SIZES, TRAINABLE, batch, cross_entropy
from tests.api.runs import Trained, flat, train, values


def test_parameters_are_live(run: Trained) -> None:
    state, module, optimizer = run
    assert len(state.parameters) == 4
    assert [name for name, _ in state.parameters] == sorted([*TRAINABLE, *FROZEN])
    for name, parameter in state.parameters:
        assert name in state.parameters
        assert parameter.name == name
        assert parameter.requires_grad is (name in TRAINABLE)
        assert parameter.data.size == SIZES[name]
        assert (parameter.grad is None) == (name in FROZEN)
    parameter = state.parameters["fc1.bias"]
    data, gradient = parameter.data, parameter.grad
    assert gradient is not None
    np.testing.assert_array_equal(gradient, 0)
    before = data.copy()
    module(*batch())
    assert np.abs(gradient).max() > 0
    optimizer.step()
    assert not np.array_equal(data, before)
    data[:] = 3
    np.testing.assert_array_equal(state.parameters["fc1.bias"].data, 3)


def test_a_view_outlives_the_state(files: Path, engine: str) -> None:
    data = CheckpointState.load_checkpoint(files / "checkpoint", engine=engine).parameters
    kept = data["fc1.weight"].data
    expected = kept.copy()
    del data
    np.testing.assert_array_equal(kept, expected)


def test_parameters_can_be_set(run: Trained) -> None:
    state, module, _ = run
    state.parameters["fc1.weight"] = np.zeros((16, 8), np.float32)
    parameter = state.parameters["fc2.weight"]
    parameter.data = np.full((3, 16), 2, np.float32, order="F")
    np.testing.assert_array_equal(state.parameters["fc1.weight"].data, 0)
    np.testing.assert_array_equal(parameter.data, 2)
    x, labels = batch()
    expected = cross_entropy(values(state), x, labels)
    np.testing.assert_allclose(module(x, labels)[0], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(15, np.float32), r"shape mismatch: 'fc1.bias' has the shape \(16,\)"),
        (np.zeros(16), "type mismatch: 'fc1.bias' is float32, the value is float64"),
        (1.0, "shape mismatch"),
    ],
)
def test_parameters_keep_their_shape_and_type(run: Trained, value: Any, message: str) -> None:
    state, _, _ = run
    with pytest.raises(RuntimeError, match=message):
        state.parameters["fc1.bias"] = value
    with pytest.raises(StateError, match=message):
        state.parameters["fc1.bias"].data = value


def test_unknown_parameters(run: Trained) -> None:
    state, _, _ = run
    assert "fc1.weights" not in state.parameters
    with pytest.raises(KeyError, match=r"Parameter fc1.weights not found. Did you mean 'fc1.we"):
        state.parameters["fc1.weights"]
    with pytest.raises(UnknownParameterError, match="not found"):
        state.parameters["nothing"] = np.zeros(1, np.float32)


def test_everything_has_a_repr(run: Trained, engine: str) -> None:
    state, _, _ = run
    state.properties["epoch"] = 3
    assert repr(state.parameters) == "Parameters(fc1.bias, fc1.weight, fc2.bias, fc2.weight)"
    assert repr(state.parameters["fc1.bias"]) == "Parameter(name=fc1.bias, requires_grad=True)"
    assert repr(state.properties) == "Properties(epoch=3)"
    assert repr(state) == f"CheckpointState(4 parameters, engine='{engine}')"


def test_contiguous_parameters(run: Trained) -> None:
    state, module, _ = run
    order = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    for trainable_only in (True, False):
        buffer = module.get_contiguous_parameters(trainable_only)
        names = [name for name in order if not trainable_only or name in TRAINABLE]
        expected = np.concatenate([state.parameters[name].data.ravel() for name in names])
        np.testing.assert_array_equal(buffer.numpy(), expected)
        assert buffer.shape() == [len(expected)]
        assert buffer.data_type() == "tensor(float)"
        assert buffer.device_name() == "Cpu"
        assert module.get_parameters_size(trainable_only) == len(expected)
    assert module.get_parameters_size() == sum(SIZES[name] for name in TRAINABLE)
    assert module.get_contiguous_parameters().shape() == [sum(SIZES.values())]
    state.parameters["fc1.weight"].data[:] = 9
    assert 9 not in buffer.numpy(), "the buffer is a copy"


@pytest.mark.parametrize("trainable_only", [True, False])
@pytest.mark.parametrize(
    "convert",
    [
        lambda buffer: buffer,
        lambda buffer: ort.OrtValue(buffer),
        lambda buffer: buffer.numpy(),
        lambda buffer: buffer.numpy().reshape(1, -1),
    ],
    ids=["native", "python", "array", "any rank"],
)
def test_copy_buffer_to_parameters(
    run: Trained, trainable_only: bool, convert: Callable[[Any], Any]
) -> None:
    _, module, optimizer = run
    old = module.get_contiguous_parameters(trainable_only)
    kept = old.numpy().copy()
    train(module, optimizer)
    assert not np.array_equal(flat(module, trainable_only), kept)
    module.copy_buffer_to_parameters(convert(old), trainable_only)
    np.testing.assert_array_equal(flat(module, trainable_only), kept)


@pytest.mark.parametrize(
    ("buffer", "message"),
    [
        (np.zeros(7, np.float32), "Parameters buffer size incorrect. Expected:192, Actual:7"),
        (np.zeros(192), "type incorrect: it is float32, not float64"),
        ("zeros", "an OrtValue or a NumPy array, not a str"),
    ],
)
def test_wrong_buffers(run: Trained, buffer: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        run[1].copy_buffer_to_parameters(buffer)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (0, 0),
        (-1, -1),
        (2**40, 2**40),
        (True, 1),
        (np.int32(7), 7),
        (np.bool_(False), 0),
        (2**70, float(np.float32(2**70))),
        (0.0, 0.0),
        (0.1, float(np.float32(0.1))),
        (np.float32(1.5), 1.5),
        (np.float64(1e-20), float(np.float32(1e-20))),
        (1e300, float("inf")),
        ("", ""),
        ("onnxruntime", "onnxruntime"),
        ("été\n", "été\n"),
        (b"bytes", "bytes"),
    ],
)
def test_properties_survive(
    run: Trained, open_run: Any, tmp_path: Path, value: Any, stored: Any
) -> None:
    state, _, _ = run
    assert len(state.properties) == 0
    assert "name" not in state.properties
    state.properties["name"] = value
    CheckpointState.save_checkpoint(state, tmp_path / "saved")
    for held in (state, open_run(tmp_path / "saved")[0]):
        assert len(held.properties) == 1
        assert "name" in held.properties
        assert held.properties["name"] == stored
        assert type(held.properties["name"]) is type(stored)
        assert list(held.properties) == [("name", stored)]


def test_properties_can_change_their_type(run: Trained) -> None:
    state, _, _ = run
    for value in (1, "two", 3.0):
        state.properties["a"] = value
        assert state.properties["a"] == value
    with pytest.raises(KeyError, match=r"Property b not found\. Known names: 'a'"):
        state.properties["b"]
    for wrong in (None, [1], {}):
        with pytest.raises(TypeError, match="properties are integers, floats and strings"):
            state.properties["a"] = wrong
    with pytest.raises(TypeError, match="The name of a property is a string"):
        state.properties[3] = 1  # type: ignore[index]
