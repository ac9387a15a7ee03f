"""The flat buffer of parameters of different types, and what each engine can do with them."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from blockdsl import artifacts
from blockdsl.api import CheckpointState, Module, Optimizer
from blockdsl.errors import StateError, UnsupportedTypeError

VALUES = {
    "half": np.float16([0.1, -2.5, 3.0]),
    "brain": np.asarray([0.1, 1.5, -3.0], ml_dtypes.bfloat16),
    "single": np.float32([0.1, 7.0, -1.0]),
    "double": np.float64([0.1, 1 / 3, -1e-9]),
    "count": np.int64([1, -(2**53), 3]),
}


def scaled(*names: str) -> onnx.ModelProto:
    """x [batch, 3] times each of the parameters, in float32."""
    nodes, product = [], "x"
    for name in names:
        nodes.append(helper.make_node("Cast", [name], [f"{name}32"], to=onnx.TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [product, f"{name}32"], [f"x{name}"]))
        product = f"x{name}"
    graph = helper.make_graph(
        nodes,
        "scaled",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info(product, onnx.TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(VALUES[name], name) for name in names],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def open_module(
    folder: Path, names: list[str], trained: list[str], engine: str, checkpoint: str = "checkpoint"
) -> tuple[CheckpointState, Module]:
    artifacts.generate_artifacts(
        scaled(*names),
        requires_grad=trained,
        frozen_params=[name for name in names if name not in trained],
        loss=artifacts.LossType.MSELoss,
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory=folder,
        nominal_checkpoint=True,
    )
    state = CheckpointState.load_checkpoint(folder / checkpoint, engine=engine)
    return state, Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")


def zeros(state: CheckpointState) -> None:
    for name, parameter in state.parameters:
        state.parameters[name] = np.zeros_like(parameter.data)


MIXES = [
    (["half", "single"], np.float32),
    (["half", "brain"], np.float32),
    (["single", "double"], np.float64),
    (["half", "brain", "single", "double"], np.float64),
    (["single", "count"], np.float64),
]


@pytest.mark.parametrize(
    ("names", "dtype"), MIXES, ids=lambda mix: None if isinstance(mix, type) else "-".join(mix)
)
def test_a_buffer_holds_every_parameter_exactly(tmp_path, names, dtype):
    trained = [name for name in names if name != "count"]
    state, module = open_module(tmp_path, names, trained, "session")
    buffer = module.get_contiguous_parameters()
    assert buffer.numpy().dtype == dtype
    assert module.get_parameters_size(trainable_only=False) == buffer.shape()[0] == 3 * len(names)
    assert module.get_parameters_size() == 3 * len(trained)
    expected = np.concatenate([VALUES[name].astype(np.float64) for name in names])
    np.testing.assert_array_equal(buffer.numpy().astype(np.float64), expected)

    zeros(state)
    module.copy_buffer_to_parameters(buffer, trainable_only=False)
    for name, parameter in state.parameters:
        assert parameter.data.dtype == VALUES[name].dtype
        np.testing.assert_array_equal(parameter.data, VALUES[name])

    x = np.ones((2, 3), np.float32)
    assert np.isfinite(module(x, x))
    for name in trained:
        gradient = state.parameters[name].grad
        assert gradient is not None
        assert gradient.dtype == VALUES[name].dtype


def test_the_trained_alone_decide_on_their_buffer(tmp_path):
    state, module = open_module(tmp_path, ["single", "double"], ["single"], "session")
    buffer = module.get_contiguous_parameters(trainable_only=True)
    assert buffer.data_type() == "tensor(float)"
    zeros(state)
    module.copy_buffer_to_parameters(buffer)
    np.testing.assert_array_equal(state.parameters["single"].data, VALUES["single"])
    np.testing.assert_array_equal(state.parameters["double"].data, 0)


def test_mixed_parameters_train(tmp_path):
    names = ["half", "single", "double"]
    state, module = open_module(tmp_path, names, names, "session")
    optimizer = Optimizer(tmp_path / "optimizer_model.onnx", module)
    optimizer.set_learning_rate(0.05)
    x = np.ones((2, 3), np.float32)
    losses = []
    for _ in range(5):
        losses.append(float(module(x, x)))
        optimizer.step()
        module.lazy_reset_grad()
    assert losses[-1] < losses[0]
    assert not np.array_equal(state.parameters["double"].data, VALUES["double"])


def test_a_nominal_state_of_mixed_parameters_is_completed(tmp_path):
    names = ["half", "single", "double"]
    _, full = open_module(tmp_path, names, names, "session")
    state, module = open_module(tmp_path, names, names, "session", "nominal_checkpoint")
    assert module.get_parameters_size() == 9
    module.copy_buffer_to_parameters(full.get_contiguous_parameters(), trainable_only=False)
    np.testing.assert_array_equal(state.parameters["double"].data, VALUES["double"])


def test_buffers_of_another_type_are_refused(tmp_path):
    names = ["half", "double"]
    _, module = open_module(tmp_path, names, names, "session")
    with pytest.raises(StateError, match="buffer type incorrect: it is float64, not float32"):
        module.copy_buffer_to_parameters(np.zeros(6, np.float32))


@pytest.mark.parametrize("number", [0.5, np.nan, np.inf, 2.0**63])
def test_numbers_that_are_no_integers_are_refused_for_integers(tmp_path, engine, number):
    state, module = open_module(tmp_path, ["single", "count"], ["single"], engine)
    buffer = np.array([9.0, 9.0, 9.0, 1.0, number, 3.0])
    with pytest.raises(StateError, match=r"Element 4 of the buffer is .* int64 parameter there"):
        module.copy_buffer_to_parameters(buffer, trainable_only=False)
    for name, parameter in state.parameters:
        np.testing.assert_array_equal(parameter.data, VALUES[name])


def test_integers_that_no_buffer_holds_are_refused(tmp_path):
    state, module = open_module(tmp_path, ["single", "count"], ["single"], "session")
    state.parameters["count"] = np.int64([2**53 + 1, 0, 0])
    with pytest.raises(StateError, match="does not hold the integer 9007199254740993 exactly"):
        module.get_contiguous_parameters()
    assert module.get_contiguous_parameters(trainable_only=True).numpy().dtype == np.float32


def test_frozen_parameters_of_other_types(tmp_path, engine):
    names = ["single", "double", "count"]
    state, module = open_module(tmp_path, names, ["single"], engine)
    buffer = module.get_contiguous_parameters()
    assert buffer.data_type() == "tensor(double)"
    zeros(state)
    module.copy_buffer_to_parameters(buffer, trainable_only=False)
    for name, parameter in state.parameters:
        np.testing.assert_array_equal(parameter.data, VALUES[name])
    assert module.get_contiguous_parameters(trainable_only=True).data_type() == "tensor(float)"


def test_mixed_trained_parameters_need_the_session_engine(tmp_path, engine):
    if engine == "session":
        open_module(tmp_path, ["half", "single"], ["half", "single"], engine)
        return
    with pytest.raises(UnsupportedTypeError, match="trains float32 parameters only; 'half' is fl"):
        open_module(tmp_path, ["half", "single"], ["half", "single"], engine)


def test_mixed_nominal_states_need_the_session_engine(tmp_path, engine):
    names = ["single", "double"]
    state, module = open_module(tmp_path, names, ["single"], engine, "nominal_checkpoint")
    buffer = np.zeros(6)
    if engine == "session":
        module.copy_buffer_to_parameters(buffer, trainable_only=False)
        assert not state.nominal
        return
    with pytest.raises(UnsupportedTypeError, match="completes nominal states of float32"):
        module.copy_buffer_to_parameters(buffer, trainable_only=False)
