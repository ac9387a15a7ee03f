"""Names of the inputs and outputs that grad, vjp, jvp and hvp add to a model."""

import numpy as np
import pytest

import blockdsl
from blockdsl import grad, gradients, hvp, jvp, vjp
from blockdsl.errors import GradientError
from blockdsl.graph.control import either
from tests.engines import run
from tests.runs import forward

A = np.array([0.5, -1.0, 2.0], np.float32)
V = np.array([1.0, 0.5, -2.0], np.float32)


def penalised(x):
    """A loss with a gradient in it, which is a tensor `x_grad` already."""
    slope = gradients((x * x * x).sum(), x)
    return (slope * x).sum()


def in_a_branch(x):
    """The same with the gradient in a branch, whose tensors have names of their own."""
    return either(x.sum() > -100, lambda: (gradients((x**3).sum(), x) * x).sum(), lambda: x.sum())


TRANSFORMS = {
    "grad": (lambda m, **s: grad(m, "x", **s), ["x_grad"], {}),
    "vjp": (lambda m, **s: vjp(m, "x", **s), ["x_grad"], {"cotangent": np.array(1, np.float32)}),
    "jvp": (lambda m, **s: jvp(m, "x", **s), ["{y}_tangent"], {"x_tangent": V}),
    "hvp": (lambda m, **s: hvp(m, "x", **s), ["x_grad", "x_hvp"], {"x_vector": V}),
}
EXPECTED = {
    "x_grad": 9 * A**2,
    "{y}_tangent": (9 * A**2 * V).sum(),
    "x_hvp": 18 * A * V,
}


def feeds_of(model, fed):
    suffixes = {name.split("_")[-1]: value for name, value in fed.items()}
    return {
        i.name: A if i.name == "x" else suffixes[i.name.split("_")[-1]] for i in model.graph.input
    }


# The outputs were called x_grad_1, and x_grad was a tensor that is no output.
@pytest.mark.parametrize("build", [penalised, in_a_branch])
@pytest.mark.parametrize(("transform", "promised", "fed"), TRANSFORMS.values(), ids=TRANSFORMS)
def test_the_promised_names_are_kept(build, transform, promised, fed):
    model = forward(build, (3,))
    y = model.graph.output[0].name
    made = transform(model)
    names = [p.format(y=y) for p in promised]
    assert [o.name for o in made.graph.output] == [y, *names]
    results = dict(zip([y, *names], run(made, feeds_of(made, fed)), strict=True))
    for name, promise in zip(names, promised, strict=True):
        np.testing.assert_allclose(results[name], EXPECTED[promise], rtol=1e-5)


@pytest.mark.parametrize(("transform", "promised", "fed"), TRANSFORMS.values(), ids=TRANSFORMS)
def test_names_can_be_given(transform, promised, fed):
    model = forward(penalised, (3,))
    y = model.graph.output[0].name
    wanted = {p.format(y=y): f"given/{i}" for i, p in enumerate(promised)}
    made = transform(model, names=wanted)
    assert [o.name for o in made.graph.output] == [y, *wanted.values()]


def test_products_of_products():
    """What the interface has already gets a number; the name clash was an error."""
    once = hvp(forward(lambda x: (x**4).sum(), (3,)), "x")
    y = once.graph.output[0].name
    twice = hvp(once, "x", of=y)
    assert [i.name for i in twice.graph.input] == ["x", "x_vector", "x_vector_1"]
    assert [o.name for o in twice.graph.output] == [y, "x_grad", "x_hvp", "x_grad_1", "x_hvp_1"]
    results = run(twice, {"x": A, "x_vector": V, "x_vector_1": 2 * V})
    for found, expected in zip(results[1:], [4 * A**3, 12 * A**2 * V] * 2, strict=True):
        scale = found[0] / expected[0]
        np.testing.assert_allclose(found, scale * expected, rtol=1e-5)
        assert round(float(scale), 4) in (1, 2)


def test_products_of_products_under_given_names():
    once = jvp(forward(lambda x: x**3, (3,)), "x", names={"x_tangent": "v"})
    y = once.graph.output[1].name
    twice = jvp(once, "x", of=y, names={"x_tangent": "w", f"{y}_tangent": "second"})
    assert [i.name for i in twice.graph.input] == ["x", "v", "w"]
    assert twice.graph.output[-1].name == "second"
    results = run(twice, {"x": A, "v": V, "w": V})
    np.testing.assert_allclose(results[-1], 6 * A * V * V, rtol=1e-5)


def test_gradients_of_gradients_of_models():
    model = forward(lambda x: (x**4).sum(), (3,))
    for order in range(2):
        model = grad(model, "x", names={"x_grad": f"order_{order}"})
        total = model.graph.output[-1].name
        with blockdsl.base(model) as handle:
            graph = blockdsl.graph.current()
            graph.set_outputs([(graph.value(total) * np.ones(3, np.float32)).sum()])
        model = handle.model
    np.testing.assert_allclose(run(model, {"x": A})[0], (12 * A**2).sum(), rtol=1e-5)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"x_grad": "x"}, "calls 'x_grad' 'x', which is the name of another"),
        ({"y_grad": "g"}, "names has 'y_grad', which is not added. Did you mean 'x_grad'"),
    ],
)
def test_names_that_cannot_be(names, message):
    with pytest.raises(GradientError, match=message):
        grad(forward(penalised, (3,)), "x", names=names)
