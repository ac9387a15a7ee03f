"""OrtValues pass through a step as they are: nothing is copied into arrays or out of them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from tests.api.mlp import batch
from tests.api.runs import Trained


@pytest.fixture
def values() -> list[ort.OrtValue]:
    """A batch in memory of the runtime's own."""
    made = []
    for array in batch():
        value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), array.dtype.type)
        value.update_inplace(array)
        made.append(value)
    return made


@pytest.fixture
def no_arrays(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Refuse to convert an OrtValue to an array or back; labels are read where they lie."""
    view = ort.OrtValue.numpy

    def refuse(*arguments: Any, **settings: Any) -> Any:
        raise AssertionError("an array was made")

    def view_of_labels(value: ort.OrtValue) -> np.ndarray:
        return view(value) if value.data_type() == "tensor(int64)" else refuse()

    def forbid() -> None:
        for name in ("numpy", "__array__", "ortvalue_from_numpy", "update_inplace"):
            monkeypatch.setattr(ort.OrtValue, name, refuse, raising=False)
        monkeypatch.setattr(ort.OrtValue, "numpy", view_of_labels)

    return forbid


@pytest.mark.parametrize("training", [True, False])
def test_a_step_makes_no_arrays(
    run: Trained, values: list[ort.OrtValue], no_arrays: Any, training: bool
) -> None:
    _, module, _ = run
    expected = [np.array(output) for output in module.train(training)(*batch())]
    module.lazy_reset_grad()
    no_arrays()
    results = [module(*values), module(*values)]
    for outputs in results:
        assert all(type(output) is ort.OrtValue for output in outputs)
        for output, wanted in zip(outputs, expected, strict=True):
            assert output.device_name() == "cpu"
            found = buffer_of(output, wanted)
            np.testing.assert_array_equal(found, wanted)
    # Each step hands out memory of its own, which the next one does not write over.
    places = [output.data_ptr() for outputs in results for output in outputs]
    assert len(set(places)) == len(places)


def buffer_of(value: ort.OrtValue, like: np.ndarray) -> np.ndarray:
    """The contents of an OrtValue, by its address."""
    bytes_ = ctypes.string_at(value.data_ptr(), like.nbytes)
    return np.frombuffer(bytes_, like.dtype).reshape(like.shape)


@pytest.mark.parametrize("training", [True, False])
def test_the_session_reads_the_memory_that_is_given(
    open_run: Any,
    values: list[ort.OrtValue],
    engine: str,
    monkeypatch: pytest.MonkeyPatch,
    training: bool,
) -> None:
    _, module, _ = open_run()
    module.train(training)
    bound: dict[str, int] = {}
    original = ort.IOBinding.bind_ortvalue_input

    def record(self: Any, name: str, value: ort.OrtValue) -> None:
        bound[name] = value.data_ptr()
        original(self, name, value)

    monkeypatch.setattr(ort.IOBinding, "bind_ortvalue_input", record)
    module(*values)
    if engine == "session":
        given = dict(zip(module.input_names(), values, strict=True))
        assert bound == {name: value.data_ptr() for name, value in given.items()}
    else:  # the C classes take the values themselves
        assert bound == {}


def test_one_array_makes_all_outputs_arrays(run: Trained, values: list[ort.OrtValue]) -> None:
    x, labels = values
    for inputs in ([x, batch()[1]], [batch()[0], labels]):
        assert all(type(output) is np.ndarray for output in run[1](*inputs))
