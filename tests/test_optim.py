"""Optimizers: equal to PyTorch, to NumPy and to onnxruntime-training's, in every float type."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, checker, helper, parser

import blockdsl
from blockdsl.backend.in_place import InPlaceCheck
from blockdsl.errors import BlockError, GraphError, OptimizerError, UnknownNameError
from blockdsl.gradient.bodies import functions_for, unroll_optimizer
from blockdsl.graph import current
from blockdsl.optim import (
    SGD,
    AdamW,
    AddDecayedWeights,
    Chain,
    ClipGradNorm,
    Optimizer,
    ScaleByAdam,
    ScaleByLearningRate,
    Trace,
)
from blockdsl.testing import assert_close, evaluate
from tests.engines import available_engines, loads_opset, run
from tests.optimizers import (
    EVERY,
    GRADIENTS,
    PYTORCH,
    RATES,
    ROWS,
    START,
    Lion,
    Reference,
    Stepper,
    arrays,
    made,
    model_of,
    name_of,
    plain_form,
    plain_of,
)

FLOATS = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
training_build = pytest.mark.skipif(
    "training" not in available_engines(), reason="needs onnxruntime-training"
)


def trajectory(stepper, dtype=np.float32):
    """The state after each of the file's steps."""
    for rate, gradients in zip(RATES, GRADIENTS, strict=True):
        yield dict(stepper.step(arrays(gradients, dtype), rate))


# -- what the steps come to ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_steps_equal_numpys(row, dtype):
    parameters = arrays(START, dtype)
    stepper = Stepper(plain_of(made(*row), parameters), parameters)
    reference = Reference(*row, parameters)
    for state, rate, gradients in zip(trajectory(stepper, dtype), RATES, GRADIENTS, strict=True):
        expected = reference.step(arrays(gradients, dtype), rate)
        for name, value in expected.items():
            assert_close(state[name], value, dtype=dtype, gradient=True, what=name)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "row", PYTORCH["rows"], ids=lambda row: name_of((row["optimizer"], row["arguments"]))
)
def test_steps_equal_pytorchs(row, dtype):
    parameters = arrays(START, dtype)
    optimizer = made(row["optimizer"], row["arguments"])
    stepper = Stepper(plain_of(optimizer, parameters), parameters)
    for state, expected in zip(trajectory(stepper, dtype), row["values"], strict=True):
        for name, value in expected.items():
            assert_close(state[name], value, dtype=dtype, what=name)


def native_rows():
    """The optimizers that the training build has an operator for."""
    parameters = arrays(START, np.float32)
    return [r for r in ROWS if made(*r).native(list(parameters)) is not None]


@training_build
@pytest.mark.parametrize("row", native_rows(), ids=name_of)
def test_steps_equal_the_training_builds(row, tmp_path):
    from tests.native_optimizer import NativeOptimizer

    parameters = arrays(START, np.float32)
    model = model_of(made(*row), parameters)
    native = NativeOptimizer(model, parameters, tmp_path)
    stepper = Stepper(plain_form(model, parameters), parameters)
    for state, expected in zip(trajectory(stepper), trajectory(native), strict=True):
        shared = state.keys() & expected.keys()
        assert shared >= parameters.keys()
        for name in shared:
            assert_close(state[name], expected[name], rtol=1e-6, what=name)


# -- the models ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
@pytest.mark.parametrize("name", EVERY)
def test_models_are_valid_and_keep_types(name, dtype):
    parameters = arrays(START, dtype)
    model = plain_of(EVERY[name](), parameters)
    checker.check_model(model, full_check=True)
    kinds = {v.name: v.type for v in model.graph.input}
    slots = [n for n in kinds if n.rpartition(".")[0] in START]
    assert list(kinds)[:2] == ["learning_rate", "step"]
    assert [v.name for v in model.graph.output] == [
        f"{n}.out" for n in kinds if n in START or n in slots
    ]
    for value in model.graph.output:
        assert value.type == kinds[value.name.removesuffix(".out")]
    wide = TensorProto.DOUBLE if dtype is np.float64 else TensorProto.FLOAT
    assert {kinds[n].tensor_type.elem_type for n in slots} <= {wide}


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
@pytest.mark.parametrize("name", [name for name in EVERY if name != "lion"])  # it reads m after m'
def test_everything_is_changed_in_place(name, dtype):
    model = plain_of(EVERY[name](), arrays(START, dtype))
    check = InPlaceCheck(model.graph)
    refused = [
        value.name
        for value in model.graph.output
        if not check.allows(value.name.removesuffix(".out"), value.name)
    ]
    assert refused == []


@pytest.mark.parametrize("opset", [7, 12, 13, 18, 21, 23])
@pytest.mark.parametrize("name", EVERY)
def test_models_are_right_at_every_opset(name, opset):
    if not loads_opset(opset):
        pytest.skip("the runtime is older")
    parameters = arrays(START, np.float32)
    expected = list(trajectory(Stepper(plain_of(EVERY[name](), parameters), parameters)))
    model = plain_of(EVERY[name](), parameters, opset)
    assert [o.version for o in model.opset_import if not o.domain] == [opset]
    for state, wanted in zip(trajectory(Stepper(model, parameters)), expected, strict=True):
        for key, value in wanted.items():
            assert_close(state[key], value, rtol=1e-6, what=key)


@pytest.mark.parametrize("optimizer", [AdamW(weight_decay=0.1), SGD(), SGD(momentum=0.5)], ids=str)
def test_few_nodes_per_parameter(optimizer):
    def count(parameters):
        shapes = {f"p{i}": np.zeros((2, i + 1), np.float32) for i in range(parameters)}
        return len(plain_of(optimizer, shapes).graph.node)

    limit = {"AdamWOptimizer": 13, "SGDOptimizerV2": 2}
    native = optimizer.native(["p0"])
    assert count(9) - count(4) == 5 * (limit[native.operator] if native else 4)


def test_names_are_the_same_on_every_build():
    parameters = arrays(START, np.float32)
    for name, make in EVERY.items():
        assert model_of(make(), parameters) == model_of(make(), parameters), name


# -- the form of onnxruntime-training --------------------------------------------------------------

MOMENTS = ["first_order_moments", "second_order_moments"]


@pytest.mark.parametrize("clip_grad", [None, ClipGradNorm(2.5)])
@pytest.mark.parametrize("optimizer", [AdamW, SGD])
def test_the_native_form(optimizer, clip_grad):
    count = 2 if optimizer is AdamW else 1
    model = model_of(optimizer(clip_grad=clip_grad), arrays(START, np.float32), opset=14)
    assert [v.name for v in model.graph.input] == [
        *("learning_rate", "step", "params", "gradients"),
        *MOMENTS[:count],
    ]
    rate, step, *sequences = (v.type for v in model.graph.input)
    assert rate == helper.make_tensor_type_proto(TensorProto.FLOAT, [1])
    assert step == helper.make_tensor_type_proto(TensorProto.INT64, [1])
    assert {s.sequence_type.elem_type.tensor_type.elem_type for s in sequences} == {1}
    (flag,) = model.graph.output
    assert flag.type == helper.make_tensor_type_proto(TensorProto.BOOL, [1])
    node = model.graph.node[-1]
    clipped = "gradients" if clip_grad is None else model.graph.node[0].output[0]
    if optimizer is AdamW:
        given = ["learning_rate", "step", "params", clipped, *MOMENTS]
    else:
        given = ["learning_rate", "params", clipped]
    assert list(node.input) == given
    assert node.output[0] == flag.name
    assert model.opset_import[1].version == 14
    assert {f.name for f in model.functions} == {n.op_type for n in model.graph.node}


def test_adamw_has_the_defaults_of_1_19():
    model = model_of(AdamW(), arrays(START, np.float32))
    found = {a.name: helper.get_attribute_value(a) for a in model.graph.node[0].attribute}
    expected = {"alpha": 0.9, "beta": 0.999, "epsilon": 1e-6, "weight_decay": 0.0}
    assert found == pytest.approx(expected | {"correct_bias": 1, "adam_mode": 1})


def test_settings_are_positional_as_in_1_19():
    clip = ClipGradNorm(1.0)
    one, other = AdamW(False, (0.5, 0.75), 1e-3, 0.5, clip), SGD(clip)
    assert (one.bias_correction, one.betas, one.eps, one.weight_decay) == (
        *(False, (0.5, 0.75), 1e-3),
        0.5,
    )
    assert one.clip_grad is other.clip_grad is clip


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(momentum=0.5),
        SGD(weight_decay=0.1),
        AdamW(weight_decay_groups={"*.bias": 0.1}),
        AdamW(mode="torch", bias_correction=False),
    ],
    ids=str,
)
def test_what_the_training_build_does_not_know_is_plain(optimizer):
    model = model_of(optimizer, arrays(START, np.float32))
    assert {n.domain for n in model.graph.node} == {""}
    assert not model.functions


def test_groups_that_agree_are_one():
    optimizer = AdamW(weight_decay=0.5, weight_decay_groups={"*.bias": 0.25, "*": 0.25})
    (node,) = model_of(optimizer, arrays(START, np.float32)).graph.node
    assert {a.name: a.f for a in node.attribute}["weight_decay"] == 0.25


def exposed(model):
    """A model of sequences that puts out the new values, too."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for name in copy.graph.node[-1].output[1:]:
        kind = helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)
        copy.graph.output.append(kind)
    return copy


@pytest.mark.parametrize("opset", [13, 14, 17, 18, 21, 23])
@pytest.mark.parametrize("row", native_rows(), ids=name_of)
def test_the_native_form_runs_in_a_plain_session(row, opset):
    if not loads_opset(opset):
        pytest.skip("the runtime is older")
    parameters = arrays(START, np.float32)
    model = exposed(model_of(made(*row), parameters, opset))
    checker.check_model(model, full_check=True)
    stepper = Stepper(plain_of(made(*row), parameters, opset), parameters)
    # Copies: the kernels of the training build write into what they are fed.
    state = [[v.copy() for v in parameters.values()]]
    state += [[np.zeros_like(v) for v in parameters.values()] for _ in MOMENTS]
    for count, expected in enumerate(trajectory(stepper), start=1):
        rate, gradients = RATES[count - 1], arrays(GRADIENTS[count - 1], np.float32)
        feeds = dict(zip(["params", *MOMENTS], state, strict=True))
        feeds |= {"learning_rate": np.float32([rate]), "step": np.int64([count])}
        feeds["gradients"] = list(gradients.values())
        flag, *new = run(model, feeds)
        np.testing.assert_array_equal(flag, [True])
        state[: len(new)] = new
        for values, slot in zip(new, ("", ".momentum0", ".momentum1"), strict=False):
            for name, value in zip(parameters, values, strict=True):
                assert_close(np.asarray(value), expected[name + slot], rtol=1e-6, what=name + slot)


def test_below_opset_13_only_the_training_build_runs_the_native_form():
    parameters = arrays(START, np.float32)
    model = model_of(AdamW(), parameters, opset=12)
    assert [n.op_type for n in model.graph.node] == ["AdamWOptimizer"]
    assert not model.functions


UPSTREAM = """
<ir_version: 8, opset_import: ["": 14, "com.microsoft": 1]>
optimizer (float[1] learning_rate, int64[1] step, seq(float[]) params, seq(float[]) gradients,
           seq(float[]) first_order_moments, seq(float[]) second_order_moments)
    => (bool[1] flag)
{
  clipped = com.microsoft.InplaceClipGradNorm <max_norm = 1.5> (gradients)
  flag = com.microsoft.AdamWOptimizer <adam_mode = 1, epsilon = 1e-6, weight_decay = 0.25>
      (learning_rate, step, params, clipped, first_order_moments, second_order_moments)
}"""


def test_models_of_onnxruntime_training_are_unrolled():
    parameters = arrays(START, np.float32)
    row = ("AdamW", {"weight_decay": 0.25, "clip_grad": 1.5})
    ours = Stepper(plain_of(made(*row), parameters), parameters)
    theirs = Stepper(plain_form(parser.parse_model(UPSTREAM), parameters), parameters)
    for state, expected in zip(trajectory(theirs), trajectory(ours), strict=True):
        for name, value in expected.items():
            np.testing.assert_array_equal(state[name], value, name)


def test_functions_have_the_outputs_that_are_called_for():
    functions = {f.name: f for f in functions_for(parser.parse_model(UPSTREAM))}
    assert list(functions) == ["InplaceClipGradNorm", "AdamWOptimizer"]
    assert list(functions["AdamWOptimizer"].output) == ["updated_flag"]


def test_unknown_models_of_sequences_are_refused():
    model = parser.parse_model(UPSTREAM.replace("AdamWOptimizer", "LambOptimizer"))
    with pytest.raises(GraphError, match=r"com.microsoft::LambOptimizer\]; known are models of"):
        unroll_optimizer(model, [("w", TensorProto.FLOAT, (2,))])
    with pytest.raises(
        GraphError, match="sequences of float32, and the parameter 'w' is of float64"
    ):
        unroll_optimizer(parser.parse_model(UPSTREAM), [("w", TensorProto.DOUBLE, (2,))])


# -- the other training operators ------------------------------------------------------------------


def accumulating(opset, dtype, shape, flag):
    """A model that adds to a buffer by the training operator."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = ["buffer", "value", *(["overwrite"] if flag else [])]
    node = helper.make_node("InPlaceAccumulatorV2", inputs, ["flag", "sum"], domain="com.microsoft")
    infos = [helper.make_tensor_value_info(name, kind, shape) for name in inputs[:2]]
    infos += [helper.make_tensor_value_info(name, TensorProto.BOOL, [1]) for name in inputs[2:]]
    outputs = [
        helper.make_tensor_value_info("flag", TensorProto.BOOL, [1]),
        helper.make_tensor_value_info("sum", kind, shape),
    ]
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "accumulating", infos, outputs)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    model.functions.extend(functions_for(model))
    return model


@pytest.mark.parametrize("opset", [7, 9, 13, 21, 23])
@pytest.mark.parametrize("shape", [(), (2, 3)], ids=str)
@pytest.mark.parametrize("flag", [True, False], ids=["flag", "no flag"])
def test_accumulator(flag, shape, opset):
    model = accumulating(opset, np.float32, shape, flag)
    checker.check_model(model, full_check=True)
    if not loads_opset(opset):
        pytest.skip("the runtime is older")
    one = np.ones(shape, np.float32)

    def summed(buffer, overwrite):
        feeds = {"buffer": buffer.copy(), "value": one, "overwrite": np.array([overwrite])}
        updated, total = run(model, feeds)
        np.testing.assert_array_equal(updated, [True])
        return total

    np.testing.assert_array_equal(summed(one, False), 2 * one)
    if flag:
        np.testing.assert_array_equal(summed(np.full_like(one, np.nan), True), one)


@pytest.mark.parametrize("opset", [7, 13, 18, 21])
def test_norm_of_several_tensors(opset):
    with blockdsl.empty_base(opset) as handle:
        x, y = blockdsl.input("x", shape=(2, 3)), blockdsl.input("y", shape=(4,))
        norm = blockdsl.op.microsoft.ReduceAllL2(x, y)
        current().set_outputs([norm])
        handle.model.functions.extend(functions_for(handle.model))
        current().check()
    feeds = {"x": np.full((2, 3), 2, np.float32), "y": np.ones(4, np.float32)}
    assert_close(run(handle.model, feeds)[0], np.float32(np.sqrt(28)))
    assert_close(evaluate(handle.model)(feeds)[0], np.float32(np.sqrt(28)))


def test_norms_of_different_numbers_of_tensors_have_no_function():
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", shape=(2,))
        blockdsl.op.microsoft.ReduceAllL2(x)
        blockdsl.op.microsoft.ReduceAllL2(x, x)
    with pytest.raises(GraphError, match=r"calls ReduceAllL2 with \[1, 2\] inputs"):
        functions_for(handle.model)


def test_functions_are_made_once():
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", shape=(2,))
        blockdsl.op.microsoft.ReduceAllL2(x)
        handle.model.functions.extend(functions_for(handle.model))
        assert functions_for(handle.model) == []


# -- what optimizers are for -----------------------------------------------------------------------


def rosenbrock(x):
    """Its gradient; the minimum lies at (1, 1)."""
    return np.array([-2 * (1 - x[0]) - 40 * x[0] * (x[1] - x[0] ** 2), 20 * (x[1] - x[0] ** 2)])


TARGETS = {
    # gradient, start, minimum
    "parabola": (lambda x: 2 * (x - [1, -2]), [3.0, 3.0], [1, -2]),
    "rosenbrock": (rosenbrock, [-0.5, 1.5], [1, 1]),
}
CONVERGING = {
    "AdamW": (AdamW(), 0.05, 0.02),
    "AdamW of PyTorch": (AdamW(mode="torch", eps=1e-8), 0.05, 0.02),
    "AdamW, clipped": (AdamW(clip_grad=ClipGradNorm(1.0)), 0.05, 0.02),
    "SGD": (SGD(), 0.01, 0.02),
    "SGD, clipped": (SGD(clip_grad=ClipGradNorm(1.0)), 0.01, 0.02),
    "SGD with momentum": (SGD(momentum=0.9), 0.002, 0.02),
    "SGD, Nesterov": (SGD(momentum=0.9, nesterov=True), 0.002, 0.02),
    "Lion": (Lion(), 0.002, 0.1),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CONVERGING)
def test_converges(name, target):
    optimizer, rate, tolerance = CONVERGING[name]
    gradient, start, minimum = TARGETS[target]
    stepper = Stepper(
        plain_of(optimizer, {"x": np.float32(start)}), {"x": np.array(start, np.float32)}
    )
    for _ in range(2500):
        stepper.step({"x": gradient(stepper.state["x"]).astype(np.float32)}, rate)
    np.testing.assert_allclose(stepper.state["x"], minimum, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("name", EVERY)
def test_without_a_gradient_only_decay_moves(name, dtype):
    parameters = arrays(START, dtype)
    stepper = Stepper(plain_of(EVERY[name](), parameters), parameters)
    decays = "decay" in name
    for _ in range(3):
        state = stepper.step({n: np.zeros_like(v) for n, v in parameters.items()}, 0.125)
        for key, value in state.items():
            assert np.isfinite(value).all()
            if not decays:
                np.testing.assert_array_equal(value, parameters.get(key, np.zeros_like(value)))


def test_half_precision_remembers_small_gradients():
    parameters = {"w": np.float16([1.0])}
    stepper = Stepper(plain_of(AdamW(), parameters), parameters)
    state = stepper.step({"w": np.float16([1e-4])}, 0.5)
    assert_close(state["w.momentum1"], [1e-11], rtol=1e-2)
    assert_close(state["w"], [0.62], rtol=1e-2)  # -0.58 if the square were zero, as in float16


def test_types_may_differ_from_parameter_to_parameter():
    parameters = {"a": np.array([1.0]), "b": np.float32([1.0]), "c": np.float16([1.0])}
    stepper = Stepper(plain_of(SGD(clip_grad=ClipGradNorm(1.0)), parameters), parameters)
    state = stepper.step({n: np.ones_like(v) for n, v in parameters.items()}, 1.0)
    for name, value in parameters.items():
        assert_close(state[name], 1 - 1 / (np.sqrt([3]) + 1e-6), dtype=value.dtype)


# -- optimizers of a user's own --------------------------------------------------------------------


def test_a_chain_of_steps_is_the_optimizer():
    parameters = arrays(START, np.float64)
    chain = Chain(ScaleByAdam(eps=1e-8), AddDecayedWeights(0.25), ScaleByLearningRate())
    row = ("AdamW", {"eps": 1e-8, "mode": "torch", "weight_decay": 0.25})
    one, other = (Stepper(plain_of(o, parameters), parameters) for o in (chain, made(*row)))
    for a, b in zip(trajectory(one, np.float64), trajectory(other, np.float64), strict=True):
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


class Forgetful(Optimizer):
    slots = ("mean",)

    def update(self, parameter, gradient, slots, learning_rate, step):
        return parameter - learning_rate * gradient


class Shapeless(Optimizer):
    def update(self, parameter, gradient, slots, learning_rate, step):
        return gradient.mean(), []


class Idle(Optimizer):
    """Returns what it was given, and one tensor twice."""

    slots = ("a", "b")

    def update(self, parameter, gradient, slots, learning_rate, step):
        double = 2 * gradient
        return parameter, [double, double]


def test_updates_may_return_what_they_were_given():
    parameters = arrays(START, np.float32)
    stepper = Stepper(plain_of(Idle(), parameters), parameters)
    gradients = arrays(GRADIENTS[0], np.float32)
    state = stepper.step(gradients, 1.0)
    for name, value in parameters.items():
        np.testing.assert_array_equal(state[name], value)
        for slot in ("a", "b"):
            np.testing.assert_array_equal(state[f"{name}.{slot}"], 2 * gradients[name])


# -- errors ----------------------------------------------------------------------------------------

W = {"fc.weight": np.zeros((2, 3), np.float32), "fc.bias": np.zeros(3, np.float32)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AdamW(betas=(1.0, 0.9)), "beta1 is 1.0: it must be at least 0 and below 1"),
        (lambda: AdamW(betas=(0.9, -0.1)), "beta2 is -0.1: it must be at least 0 and below 1"),
        (lambda: AdamW(eps=-1), "eps is -1: it must not be negative"),
        (lambda: AdamW(mode="apex"), "mode is 'apex': it is 'huggingface' or 'torch'"),
        (lambda: AdamW(weight_decay=-0.1), "The weight decay is -0.1: it must not be negative"),
        (
            lambda: SGD(weight_decay_groups={"*.bias": -1}),
            "The weight decay of '\\*.bias' is -1: it must not be negative",
        ),
        (lambda: SGD(momentum=-1), "momentum is -1: it must not be negative"),
        (lambda: SGD(nesterov=True), "Nesterov's momentum needs a momentum above 0"),
        (lambda: SGD(momentum=1, nesterov=True, dampening=0.5), "and dampening 0.5"),
        (lambda: ClipGradNorm(0), "max_norm is 0: it must be above 0"),
        (lambda: Chain(Trace(), ScaleByAdam()), "Two steps of the chain have a slot 'momentum0'"),
        (lambda: model_of(SGD(), {}), "There is nothing to train"),
        (lambda: model_of(SGD(), {"n": np.zeros(2, np.int64)}), "'n' is of int64"),
        (lambda: model_of(SGD(1.0), W), "clip_grad is 1.0: it is a blockdsl.optim.ClipGradNorm"),
        (lambda: model_of(Forgetful(), W), "Forgetful on 'fc.weight': an update returns the new"),
        (
            lambda: model_of(Shapeless(), W),
            r"float32\[\] as the new value of the parameter, which is",
        ),
    ],
)
def test_mistakes_are_told(make, message):
    with pytest.raises(OptimizerError, match=message) as caught:
        make()
    assert isinstance(caught.value, BlockError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("optimizer", [AdamW, SGD])
def test_a_group_without_members_is_a_mistake(optimizer):
    with pytest.raises(UnknownNameError, match=r"'\*.bais' matches none .* Did you mean 'fc.bias'"):
        model_of(optimizer(weight_decay_groups={"*.bais": 0.0}), W)


def test_a_parameter_that_is_called_step_is_a_mistake():
    with pytest.raises(GraphError, match="already has a tensor 'step'"):
        model_of(SGD(momentum=0.5), {"step": np.zeros(2, np.float32)})
