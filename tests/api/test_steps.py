"""Training and evaluation steps: what goes in, what comes out, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from blockdsl.api import CheckpointState, Module, Optimizer
from blockdsl.errors import (
    FeedError,
)
from tests import session_models
from tests.api.mlp import batch, cross_entropy
from tests.api.runs import Trained, flat, values


def test_train_and_eval_steps_give_the_loss(run: Trained) -> None:
    state, module, _ = run
    x, labels = batch()
    expected = cross_entropy(values(state), x, labels)
    loss, output = module(x, labels)
    assert isinstance(loss, np.ndarray)
    assert loss.shape == ()
    assert output.shape == (6, 3)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert module.eval() is module
    assert not module.training
    np.testing.assert_allclose(module(x, labels)[0], expected, rtol=1e-5)
    assert module.train() is module
    assert module.training


def test_ort_values_give_ort_values(run: Trained) -> None:
    state, module, _ = run
    x, labels = batch()
    feeds = [ort.OrtValue.ortvalue_from_numpy(array) for array in (x, labels)]
    for mode in (True, False):
        outputs = module.train(mode)(*feeds)
        assert all(isinstance(output, ort.OrtValue) for output in outputs)
        expected = cross_entropy(values(state), x, labels)
        np.testing.assert_allclose(outputs[0].numpy(), expected, rtol=1e-5)
    # The C extension's class, which `get_contiguous_parameters` returns, is taken too.
    assert isinstance(module(*[feed._ortvalue for feed in feeds])[0], ort.OrtValue)
    mixed = module(feeds[0], labels)
    assert isinstance(mixed[0], np.ndarray)
    np.testing.assert_allclose(mixed[0], expected, rtol=1e-5)


def test_results_outlive_the_next_step(run: Trained) -> None:
    _, module, optimizer = run
    feeds = [ort.OrtValue.ortvalue_from_numpy(array) for array in batch()]
    for mode in (True, False):
        module.train(mode)
        results = [module(*batch())[1], module(*feeds)[1].numpy()]
        expected = [result.copy() for result in results]
        optimizer.step()
        for seed in range(1, 4):
            module(*batch(seed))
        np.testing.assert_array_equal(results, expected)


class ArrayLike:
    """A tensor of another library."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._array


class DlpackOnly:
    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


@pytest.mark.parametrize("convert", [ArrayLike, DlpackOnly, np.ndarray.tolist, np.asfortranarray])
def test_whatever_turns_into_an_array_is_taken(run: Trained, convert: Callable[..., Any]) -> None:
    _, module, _ = run
    x, labels = batch()
    loss = module(convert(x), convert(labels))[0]
    np.testing.assert_array_equal(loss, module(x, labels)[0])


def test_gradients_accumulate_until_they_are_reset(run: Trained) -> None:
    state, module, optimizer = run
    gradient = state.parameters["fc2.weight"].grad
    assert gradient is not None
    np.testing.assert_array_equal(gradient, 0)
    module(*batch())
    once = state.parameters["fc2.weight"].grad.copy()
    assert np.abs(once).max() > 0
    for count in (2, 3):
        module(*batch())
        np.testing.assert_allclose(state.parameters["fc2.weight"].grad, count * once, rtol=1e-5)
    module.eval()(*batch())
    optimizer.step()
    module.lazy_reset_grad()
    np.testing.assert_allclose(state.parameters["fc2.weight"].grad, 3 * once, rtol=1e-5)


def test_the_step_after_a_reset_overwrites(run: Trained) -> None:
    state, module, _ = run
    module(*batch())
    once = state.parameters["fc1.weight"].grad.copy()
    module(*batch(1))
    module.lazy_reset_grad()
    module(*batch())
    np.testing.assert_array_equal(state.parameters["fc1.weight"].grad, once)


def test_input_and_output_names(run: Trained, files: Path) -> None:
    state, module, _ = run
    for mode in (True, False):
        module.train(mode)
        assert module.input_names() == ["x", "labels"]
        assert module.output_names()[1:] == ["output"]
        assert len(module.output_names()) == 2
    alone = Module(files / "training_model.onnx", state).eval()
    assert alone.input_names() == []
    assert alone.output_names() == []


X, LABELS = batch()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([X], r"training model takes 2 inputs \(x: float32\[batch, 8\], labels: int64\[.*given 1"),
        ([X, LABELS, LABELS], "but was given 3"),
        ([X.astype(np.float64), LABELS], r"'x' .* float64\[6, 8\]. .*`.astype\(np.float32\)`"),
        ([X, LABELS.astype(np.int32)], r"'labels' .* int64\[batch\] but was given int32\[6\]"),
        ([X[0], LABELS], "of rank 1 instead of 2"),
        ([X[:, :4], LABELS], r"axis 1 must be 8, not 4"),
        ([X[:2], LABELS], "axis 0 is 'batch', which is 2 in input 'x'"),
        ([None, LABELS], "was given a NoneType. Give a NumPy array or an OrtValue"),
        ([X, [0.5] * 6], r"int64\[batch\] but was given float64\[6\]"),
        ([[[1.0], [2.0, 3.0]], LABELS], "a list that does not turn into an array"),
    ],
)
def test_wrong_inputs(run: Trained, inputs: list[Any], message: str) -> None:
    _, module, _ = run
    with pytest.raises(FeedError, match=message):
        module(*inputs)
    with pytest.raises(RuntimeError, match=message.replace("training", "eval")):
        module.eval()(*inputs)


def test_inputs_have_no_keywords(run: Trained) -> None:
    with pytest.raises(TypeError, match="labels"):
        run[1](X, labels=LABELS)


def test_two_modules_share_a_state(files: Path, engine: str) -> None:
    state = CheckpointState.load_checkpoint(files / "checkpoint", engine=engine)
    first, second = (Module(files / "training_model.onnx", state) for _ in range(2))
    optimizer = Optimizer(files / "optimizer_model.onnx", second)
    second(*batch())
    optimizer.step()
    np.testing.assert_array_equal(flat(first), flat(second))


@pytest.mark.parametrize("early", [False, True])
def test_two_modules_that_train_by_turns_are_as_one(files: Path, engine: str, early: bool) -> None:
    # Each of C's modules has gradients of its own, and an optimizer keeps those that it found.
    def run(count: int) -> list[float]:
        state = CheckpointState.load_checkpoint(files / "checkpoint", engine=engine)
        modules, optimizers = [], []
        for _ in range(count):
            modules.append(Module(files / "training_model.onnx", state))
            if early:
                optimizers.append(Optimizer(files / "optimizer_model.onnx", modules[-1]))
        optimizer = (
            optimizers[0] if early else Optimizer(files / "optimizer_model.onnx", modules[-1])
        )
        losses = []
        for step in range(6):
            module = modules[step % count]
            module.lazy_reset_grad()
            losses.append(float(module(*batch(0))[0]))
            optimizer.step()
        return losses

    assert run(1) == run(2) == run(3)


@pytest.mark.parametrize("dtype", ["<U8", object])
def test_text_is_fed_as_arrays_of_strings(engine: str, tmp_path: Path, dtype: Any) -> None:
    files = session_models.write(tmp_path)
    for path in (files.training, files.eval):
        model = onnx.load(path)
        text = onnx.helper.make_tensor_value_info("text", onnx.TensorProto.STRING, ["batch", 3])
        model.graph.input[0].CopyFrom(text)
        cast = onnx.helper.make_node("Cast", ["text"], ["x"], to=onnx.TensorProto.FLOAT)
        model.graph.node.insert(0, cast)
        onnx.save(model, path)
    state = CheckpointState.load_checkpoint(files.checkpoint, engine=engine)
    module = Module(files.training, state, files.eval)
    _, target = session_models.batch()
    numbers = np.arange(12, dtype=np.float32).reshape(4, 3)
    text = numbers.astype(str).astype(dtype)
    reference = session_models.Reference.of(session_models.checkpoint())
    expected = reference.train(numbers, target)
    np.testing.assert_allclose(module(text, target)[0], expected, rtol=1e-5)
    np.testing.assert_allclose(module.eval()(text, target)[0], expected, rtol=1e-5)
    gradient = state.parameters["weight"].grad
    np.testing.assert_allclose(gradient, reference.grads["weight"], rtol=1e-4)
    with pytest.raises(FeedError, match=r"'text' .* string\[batch, 3\] but was given float32"):
        module(numbers, target)
