"""Optimizers: equal to PyTorch, to NumPy and to onnxruntime-training's, in every float type."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, checker

from blockdsl.backend.in_place import InPlaceCheck
from blockdsl.blocks import PassThrough
from blockdsl.errors import BlockError, GraphError, OptimizerError, UnknownNameError
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
from blockdsl.testing import assert_close
from tests.engines import available_engines, loads_opset
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
    native_rows,
    plain_form,
    plain_of,
    trajectory,
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
    changed = [n for n in kinds if n in START or n in slots]
    optimizer = EVERY[name]()
    in_place = dtype is np.float32 and optimizer.native(list(parameters)) is not None
    if in_place and optimizer.clip_grad is not None:
        changed += [n for n in kinds if n.endswith("_grad")]
    assert sorted(v.name for v in model.graph.output) == sorted(f"{n}.out" for n in changed)
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
        (lambda: AdamW(eps="1e-8"), "eps is '1e-8', of type str: it is a number"),
        (lambda: AdamW(betas=(0.9, None)), "beta2 is None, of type NoneType: it is a number"),
        (lambda: AdamW(betas=0.9), r"betas must be two numbers, such as \(0.9, 0.999\), not 0.9"),
        (
            lambda: AdamW(betas=(0.9,)),
            r"betas must be two numbers, such as \(0.9, 0.999\), not \(0.9,\)",
        ),
        (lambda: AdamW(weight_decay=[0.1]), r"The weight decay is \[0.1\], of type list"),
        (lambda: SGD(weight_decay_groups={"*b": "0"}), r"decay of '\*b' is '0', of type str"),
        (lambda: SGD(weight_decay_groups=0.1), "groups are 0.1: they are a dictionary from globs"),
        (lambda: SGD(momentum=None), "momentum is None, of type NoneType: it is a number"),
        (lambda: SGD(dampening="x"), "dampening is 'x', of type str: it is a number"),
        (lambda: ClipGradNorm("1"), "max_norm is '1', of type str: it is a number"),
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
        (lambda: SGD().build([TensorProto()]), "pair that TrainingBlock.parameters.. returns"),
        (lambda: SGD().build(3), "and not with one int"),
        (lambda: model_of(SGD(), {"n": np.zeros(2, np.int64)}), "'n' is of int64"),
        (
            lambda: model_of(SGD(PassThrough(), momentum=0.9), W),
            r"clip_grad is PassThrough\(\), which clips a sequence of gradients",
        ),
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
