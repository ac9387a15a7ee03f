"""Functions of onnxscript, called with values, become functions of the model."""

import subprocess
import sys

import numpy as np
import onnxscript
import onnxscript.evaluator
import pytest
from onnxscript import opset17 as ox
from onnxscript import opset18, script

import blockdsl
from blockdsl import gradients
from blockdsl.errors import OpError
from blockdsl.graph import current
from blockdsl.graph.control import either
from tests.engines import run
from tests.runs import Run, forward, generate, normal, weight

# They ended in onnxscript's evaluator, which knows no values: TypeError.


@script(default_opset=ox)
def square(x):
    return x * x


@script(default_opset=ox)
def leaky(x, alpha: float = 0.1):
    return ox.LeakyRelu(x, alpha=alpha)


@script(default_opset=ox)
def required(x, alpha: float):
    return ox.LeakyRelu(x, alpha=alpha)


@script(default_opset=ox)
def two(x, y):
    total = x + y
    difference = x - y
    return total, difference


@script(default_opset=ox)
def calls_others(x, y):
    a = square(x)
    b = square(y)
    return leaky(a - b, alpha=0.3)


@script(default_opset=ox)
def branches(x):
    if ox.ReduceSum(x) > 0.0:  # noqa: SIM108
        y = ox.Tanh(x)
    else:
        y = x * 2.0
    return y


@script(default_opset=ox)
def loops(x):
    y = x
    for _ in range(3):
        y = ox.Tanh(y) * 0.9
    return y


@script(default_opset=ox)
def flattens(x):
    return ox.Reshape(x, ox.Constant(value_ints=[-1]))


@script(default_opset=opset18)
def newer(x):
    return opset18.ReduceMean(x, opset18.Constant(value_ints=[1]))


@script(default_opset=opset18)
def alike(x):
    return opset18.Tanh(x) * 2.0


@script(default_opset=ox)
def squared_error(p, t):
    d = p - t
    return ox.ReduceMean(d * d, keepdims=0)


def traced(x):
    """A function that onnxscript only traces calls operators by its names for them."""
    values, _ = ox.TopK(x, np.array([2]))
    return ox.Exp(values) + ox.LeakyRelu(values, alpha=0.5)


CALLS = {
    "one input": (lambda x: square(x), lambda x: x * x),
    "default attribute": (lambda x: leaky(x), lambda x: np.where(x > 0, x, 0.1 * x)),
    "attribute": (lambda x: leaky(x, alpha=0.5), lambda x: np.where(x > 0, x, 0.5 * x)),
    "attribute by position": (lambda x: leaky(x, 0.5), lambda x: np.where(x > 0, x, 0.5 * x)),
    "required attribute": (lambda x: required(x, alpha=1), lambda x: x),
    "outputs": (lambda x: two(x, x * 2)[1] * two(x, x)[0], lambda x: -2 * x * x),
    "by name": (lambda x: two(y=x, x=x * 3)[1], lambda x: 2 * x),
    "number": (lambda x: two(x, 2.0)[0], lambda x: x + 2),
    "array": (lambda x: two(x, np.ones((2, 3), np.float32))[0], lambda x: x + 1),
    "functions in a function": (
        lambda x: calls_others(x, x * 0.5),
        lambda x: np.where(x * x * 0.75 > 0, x * x * 0.75, 0),
    ),
    "branches": (lambda x: branches(x), lambda x: np.tanh(x) if x.sum() > 0 else 2 * x),
    "loop": (
        lambda x: loops(x),
        lambda x: np.tanh(np.tanh(np.tanh(x) * 0.9) * 0.9) * 0.9,
    ),
    "another rank": (lambda x: flattens(x), lambda x: x.reshape(-1)),
    "operators that did not change": (lambda x: alike(x), lambda x: np.tanh(x) * 2),
    "in a branch": (
        lambda x: either(x.sum() > -100, lambda: calls_others(x, x * 0.5), lambda: x),
        lambda x: x * x * 0.75,
    ),
    "traced": (
        traced,
        lambda x: (lambda v: np.exp(v) + np.where(v > 0, v, v / 2))(-np.sort(-x, 1)[:, :2]),
    ),
}


@pytest.mark.parametrize(("build", "expected"), CALLS.values(), ids=CALLS)
def test_calls(build, expected):
    x = normal(2, 3)
    model = forward(build, ("N", 3))
    found = run(model, {"x": x})[0]
    np.testing.assert_allclose(found, expected(x), rtol=1e-5, atol=1e-6)
    assert model.graph.output[0].type.tensor_type.HasField("shape")
    # By differences of the runtime: onnx.reference does not run all of these functions.
    slope = run(forward(lambda x: gradients(build(x).sum(), x), ("N", 3)), {"x": x})[0]
    direction = normal(3, 2).T / 100
    up, down = (run(model, {"x": x + s * direction})[0].sum() for s in (1, -1))
    assert (slope * direction).sum() == pytest.approx((up - down) / 2, rel=2e-3, abs=2e-5)


def test_gradients_of_gradients():
    def build(x):
        slope = gradients(loops(x).sum(), x)
        return gradients((slope * slope).sum(), x)

    def unrolled(x):
        y = x
        for _ in range(3):
            y = y.tanh() * 0.9
        slope = gradients(y.sum(), x)
        return gradients((slope * slope).sum(), x)

    x = normal(2, 3)
    found, expected = (run(forward(f, (2, 3)), {"x": x})[0] for f in (build, unrolled))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_function_is_added_once_and_others_of_its_name_beside_it():
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", shape=("N", 3))
        square(x), square(square(x))

        def another():
            @script(default_opset=ox)
            def square(x):
                return x * x * x

            return square

        y = another()(x)
        current().set_outputs([y])
        current().check()
    assert [f.name for f in handle.model.functions] == ["square", "square_1"]
    assert run(handle.model, {"x": np.full((1, 3), 2, np.float32)})[0].tolist() == [[8, 8, 8]]


class Loss(blockdsl.Block):
    def build(self, y):
        return squared_error(y, blockdsl.input_like(y, "target"))


def test_a_loss_and_a_layer(tmp_path, engine):
    model = forward(lambda x: leaky(x @ weight("w", 4, 3), alpha=0.2), ("n", 4))
    opened = Run(generate(tmp_path / "script", model, loss=Loss()), engine)
    losses = opened.train(normal(6, 4), normal(6, 3))
    plain = Run(generate(tmp_path / "plain", model), engine)
    np.testing.assert_allclose(losses, plain.train(normal(6, 4), normal(6, 3)), rtol=1e-5)


REFUSALS = {
    "unknown attribute": (lambda x: leaky(x, beta=1.0), r"leaky: .*unexpected keyword"),
    "attribute of another kind": (lambda x: leaky(x, alpha="a"), "FLOAT for 'alpha', not 'a'"),
    "missing attribute": (lambda x: required(x), "required: missing a required argument: 'alpha'"),
    "missing input": (lambda x: two(x), "two: missing a required argument: 'y'"),
    "something else": (lambda x: two(x, object()), "A tensor, a number or an array is needed"),
    "another opset": (
        lambda x: newer(x),
        r"written for opset 18, in which ReduceMean is not the same.*opset_version=18",
    ),
}


@pytest.mark.parametrize(("build", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_called(build, message):
    with blockdsl.empty_base():
        x = blockdsl.input("x", shape=("N", 3))
        with pytest.raises(OpError, match=message):
            build(x)


def test_a_function_for_another_opset_in_a_model_of_that_opset():
    model = forward(newer, ("N", 3), opset=18)
    x = normal(2, 3)
    np.testing.assert_allclose(run(model, {"x": x})[0], x.mean(1, keepdims=True), rtol=1e-6)


def test_onnxscript_evaluates_everything_else_as_before():
    before = onnxscript.evaluator.default()
    x = normal(2, 3)
    with blockdsl.empty_base():
        np.testing.assert_allclose(square(x), x * x, rtol=1e-6)
        assert not current().proto.graph.node
    assert onnxscript.evaluator.default() is before


def test_onnxscript_is_not_imported():
    code = "import sys, blockdsl\nwith blockdsl.empty_base(): blockdsl.input('x').exp()\n"
    code += "assert 'onnxscript' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
