"""What is trained by default, frozen, or by name, wherever a model holds its parameters."""

import logging
import re
import warnings

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from blockdsl import op
from blockdsl.artifacts import LossType, OptimType, generate_artifacts
from blockdsl.artifacts.roles import roles
from blockdsl.backend import checkpoint as codec
from blockdsl.errors import BlockError, BlockWarning
from tests.placed import PLACES, placed
from tests.runs import Run, forward, generate, normal, weight

rng = np.random.default_rng(3)
W, B = rng.normal(size=(4, 3)).astype(np.float32), np.float32([0.3, -0.2, 0.1])
STEPS = [
    helper.make_node("MatMul", ["x", "w"], ["h"]),
    helper.make_node("Add", ["h", "b"], ["y"]),
]


def trained(folder):
    return list(codec.load(folder / "checkpoint").trainable)


def expected_gradients(x, target):
    """Of the mean squared error of x W + B."""
    d = 2 * (x.astype(np.float64) @ W + B - target) / target.size
    return {"w": x.T @ d, "b": d.sum(axis=0)}


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("place", PLACES)
def test_parameters_in_every_place_are_trained(tmp_path, place, opset, engine):
    # Only initializers of the graph itself were; the others were not found even by name.
    generate(tmp_path, placed(STEPS, {"w": W, "b": B}, place, opset=opset))
    run, x, target = Run(tmp_path, engine), normal(5, 4), normal(5, 3)
    found = run.gradients(x, target)
    if place.startswith("branch"):  # the second one is not taken
        assert len(found) == 4
        found = {n.split("/")[-1]: g for n, g in found.items() if "then_branch" in n}
    for name, gradient in expected_gradients(x, target).items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-4, atol=1e-5)
    run.train(x, target)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("place", PLACES)
def test_parameters_of_every_type_are_found(tmp_path, place, dtype):
    arrays = {"w": W.astype(dtype), "b": B.astype(dtype)}
    generate(tmp_path, placed(STEPS, arrays, place, dtype=dtype))
    assert {name.split("/")[-1] for name in trained(tmp_path)} == {"w", "b"}
    values = codec.load(tmp_path / "checkpoint").trainable.values()
    assert {value.dtype for value in values} == {np.dtype(dtype)}


@pytest.mark.parametrize("place", ["Constant", "function", "loop", "branch", "sparse"])
def test_parameters_in_every_place_can_be_named(tmp_path, place, engine):
    model = placed(STEPS, {"w": W, "b": B}, place)
    by_end = {name.split("/")[-1]: name for name in roles(model)}
    generate(tmp_path, model, requires_grad=[by_end["w"]], frozen_params=[by_end["b"]])
    state = codec.load(tmp_path / "checkpoint")
    assert (list(state.trainable), list(state.frozen)) == ([by_end["w"]], [by_end["b"]])
    Run(tmp_path, engine).module(normal(5, 4), normal(5, 3))


def test_the_model_given_is_not_changed(tmp_path):
    model = placed(STEPS, {"w": W, "b": B}, "function")
    before = model.SerializeToString(deterministic=True)
    generate(tmp_path, model)
    assert model.SerializeToString(deterministic=True) == before


def test_a_function_that_is_called_twice_has_one_weight(tmp_path, engine):
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17, "own": 1]>
        graph (float[N, 4] x) => (float[N, 4] y) { h = own.Two (x)  y = own.Linear (h) }
        <domain: "own", opset_import: ["": 17]>
        Linear (a) => (c) { c = Identity (a) }
        <domain: "own", opset_import: ["": 17, "own": 1]>
        Two (a) => (c) { b = own.Linear (a)  t = Tanh (b)  c = own.Linear (t) }
    """)
    linear = model.functions[0]
    del linear.node[:]
    w = rng.normal(size=(4, 4)).astype(np.float32)
    linear.node.append(helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(w)))
    linear.node.append(helper.make_node("MatMul", ["a", "w"], ["c"]))
    generate(tmp_path, model)
    run, x, target = Run(tmp_path, engine), normal(5, 4), normal(5, 4)
    assert trained(tmp_path) == ["w"]
    step = 1e-6

    def loss(w):
        return np.mean((np.tanh(x.astype(np.float64) @ w) @ w @ w - target) ** 2)

    direction = rng.normal(size=(4, 4))
    slope = (loss(w + step * direction) - loss(w - step * direction)) / (2 * step)
    assert np.vdot(run.gradients(x, target)["w"], direction) == pytest.approx(slope, rel=1e-3)


@pytest.mark.parametrize("name", ["val_0", "/0/w", "/enc/W/read:0", "onnx::MatMul_7"])
def test_names_of_folded_weights(tmp_path, name, engine):
    # Weights with such names were silently left out, or "no parameter to train" was said.
    step = helper.make_node("MatMul", ["x", name], ["y"])
    generate(tmp_path, placed([step], {name: W}, "initializer"))
    assert trained(tmp_path) == [name]
    Run(tmp_path, engine).train(normal(5, 4), normal(5, 3))


def test_what_is_trained_is_logged(tmp_path, caplog):
    nodes = [*STEPS[:1], helper.make_node("Mul", ["h", "val_12"], ["s"])]
    nodes.append(helper.make_node("Add", ["s", "b"], ["y"]))
    model = placed(nodes, {"w": W, "val_12": np.float32(0.5), "b": B}, "initializer")
    with caplog.at_level(logging.INFO, logger="blockdsl"):
        generate(tmp_path, model, frozen_params=["b"])
    assert (
        "Trains 1 of 3 tensors, 12 of 16 values; frozen: 1 (3 values); left as constants: val_12 "
        "(1 value: constant)"
    ) in caplog.messages


def test_a_large_constant_that_may_be_a_parameter_is_warned_of(tmp_path):
    nodes = [helper.make_node("Max", ["x", "bound"], ["m"]), STEPS[0], STEPS[1]]
    nodes[1] = helper.make_node("MatMul", ["m", "w"], ["h"])
    rows = rng.normal(size=(16, 4)).astype(np.float32)
    model = placed(nodes, {"bound": rows, "w": W, "b": B}, "initializer", x=(16, 4), y=(16, 3))
    with pytest.warns(BlockWarning, match=r"1 tensor is not trained: bound \(64 values: constant"):
        generate(tmp_path, model)
    generate(tmp_path, model, frozen_params=["bound"])  # which says that it is known


def test_means_of_inputs_are_left_out_and_can_be_trained(tmp_path):
    def build(x):
        return (x - weight("mean", 4)) / weight("std", 4, low=1, high=2) @ weight("w", 4, 3)

    model = onnx.ModelProto.FromString(forward(build, ("batch", 4)).SerializeToString())
    generate(tmp_path, model)
    assert trained(tmp_path) == ["w"]
    generate(tmp_path, model, requires_grad=["mean", "std", "w"])
    assert trained(tmp_path) == ["mean", "std", "w"]


def test_weights_that_are_integers_are_warned_of(tmp_path, engine):
    # Only the scales were trained, without a word.
    def build(x):
        table = op.DequantizeLinear(np.ones((4, 4), np.int8), np.float32(0.1), np.int8(0))
        return (x @ table).relu() @ weight("head", 4, 3)

    model = onnx.ModelProto.FromString(forward(build, ("batch", 4)).SerializeToString())
    integers = next(t for t in model.graph.initializer if t.data_type == onnx.TensorProto.INT8)
    with pytest.warns(BlockWarning, match=r"1 tensor is stored as integers .*16 values: integer"):
        generate(tmp_path, model)
    assert trained(tmp_path) == ["head"]
    assert integers.name not in codec.load(tmp_path / "checkpoint").frozen
    Run(tmp_path, engine).train(normal(5, 4), normal(5, 3))


NO_GRADIENT = {
    "MatMulInteger": [
        helper.make_node("DynamicQuantizeLinear", ["m"], ["q", "k", "z"]),
        helper.make_node("MatMulInteger", ["q", "integers"], ["p"]),
        helper.make_node("Cast", ["p"], ["f"], to=1),
        helper.make_node("Mul", ["f", "k"], ["d"]),  # the scale alone has a derivative
    ],
    "Cast": [
        helper.make_node("Cast", ["m"], ["p"], to=6),
        helper.make_node("Cast", ["p"], ["d"], to=1),
    ],
    "an unknown operator": [helper.make_node("Polish", ["m"], ["d"], domain="com.example")],
    "one in a branch": [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "low"], ["holds"]),
        helper.make_node(
            "If",
            ["holds"],
            ["d"],
            then_branch=helper.make_graph(
                [helper.make_node("Polish", ["m"], ["p"], domain="com.example")],
                "then",
                [],
                [helper.make_tensor_value_info("p", 1, ["batch", 3])],
            ),
            else_branch=helper.make_graph(
                [helper.make_node("Neg", ["m"], ["n"])],
                "else",
                [],
                [helper.make_tensor_value_info("n", 1, ["batch", 3])],
            ),
        ),
    ],
}


@pytest.mark.parametrize("kind", NO_GRADIENT)
def test_weights_behind_an_operator_without_a_gradient(tmp_path, kind):
    # The default arguments raised the error of the operator.
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), *NO_GRADIENT[kind]]
    nodes += [helper.make_node("Mul", ["d", "s"], ["y"])]
    arrays = {"w": W, "low": np.float32(0), "s": B, "integers": np.eye(3, dtype=np.int8)}
    model = placed(nodes, arrays, "initializer")
    model.graph.value_info.append(helper.make_tensor_value_info("d", 1, ["batch", 3]))
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    through = {"one in a branch": "If", "an unknown operator": "Polish"}.get(kind, kind)
    message = rf"1 tensor is not trained: w .*through {through}, which has no gradient"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        generate(tmp_path, model)
    assert re.search(message, " ".join(str(w.message) for w in caught))
    assert trained(tmp_path) == ["s"]
    if kind != "Cast":
        message = r"no gradient rule for com\.example::Polish|through MatMulInteger .* no gradient"
        with pytest.raises(BlockError, match=message):
            generate(tmp_path, model, requires_grad=["w", "s"])


def test_an_unknown_frozen_name_is_a_warning(tmp_path):
    # Scripts name PyTorch's buffers, num_batches_tracked, which no exporter keeps: an error.
    model = placed(STEPS, {"w": W, "b": B}, "initializer")
    with pytest.warns(BlockWarning, match=r"frozen_params: Node arg bn\.count is not found"):
        generate(tmp_path, model, frozen_params=["bn.count", "b"])
    assert trained(tmp_path) == ["w"]
    with pytest.raises(BlockError, match=r"requires_grad: Node arg bn\.count is not found"):
        generate(tmp_path, model, requires_grad=["bn.count", "b"])


def test_nothing_to_train_without_an_optimizer(tmp_path):
    # An error, where 1.19.2 writes artifacts.
    model = placed([helper.make_node("Relu", ["x"], ["y"])], {}, "initializer", y=("batch", 4))
    with pytest.warns(BlockWarning, match=r"no parameter to train.*The artifacts train nothing"):
        generate_artifacts(model, loss=LossType.MSELoss, artifact_directory=tmp_path)
    assert trained(tmp_path) == []
    with pytest.raises(BlockError, match=r"no parameter to train.*or leave the optimizer out"):
        generate(tmp_path, model)


def test_a_gradient_by_an_input(tmp_path):
    # 1.19.2 takes inputs, too, where there is no optimizer: adversarial examples are made so.
    model = placed(STEPS, {"w": W, "b": B}, "initializer")
    generate(tmp_path, model, requires_grad=["x"], optimizer=None)
    outputs = [o.name for o in onnx.load(tmp_path / "training_model.onnx").graph.output]
    assert outputs[1:] == ["x_grad.accumulation.out"]
    with pytest.raises(BlockError, match=r"x is an input of the model.*leave the optimizer out"):
        generate(tmp_path, model, requires_grad=["x"], optimizer=OptimType.AdamW)


def test_external_weights_are_parameters_like_any_other(tmp_path, engine):
    table = np.linspace(-1, 1, 400 * 100).reshape(400, 100).astype(np.float32)
    fixed = np.cos(np.arange(400)[:, None] * np.linspace(0.1, 1, 100)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["e"]),
        helper.make_node("Gather", ["fixed", "i"], ["p"]),
        helper.make_node("Add", ["e", "p"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("i", 7, ["N"])],
        [helper.make_tensor_value_info("y", 1, ["N", 100])],
        [numpy_helper.from_array(a, n) for n, a in (("table", table), ("fixed", fixed))],
    )
    imports = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    generate(tmp_path / "run", tmp_path / "m.onnx")
    assert trained(tmp_path / "run") == ["table"]
    Run(tmp_path / "run", engine).train(np.arange(5), normal(5, 100))
