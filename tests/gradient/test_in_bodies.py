"""Gradients that are built in the bodies of branches and loops, of tensors around them."""

import numpy as np
import pytest

import blockdsl
from blockdsl import gradients
from blockdsl.errors import GradientError
from blockdsl.graph import current, op
from blockdsl.graph.control import either, repeat, scan
from blockdsl.testing import check_gradients
from tests.engines import run
from tests.runs import Run, forward, generate, normal, weight

# By a tensor of the graph around the body every such gradient was zero, with a false warning.


def energy(x):
    return (x * x).tanh() * x


def compared(build, *shapes, opset=17):
    """The two outputs of a function, which are to be equal, and their gradients, by differences."""
    model = forward(build, *shapes, opset=opset)
    feeds = {i.name: normal(*s) for i, s in zip(model.graph.input, shapes, strict=True)}
    inside, outside = run(model, feeds)
    np.testing.assert_allclose(inside, outside, rtol=2e-5, atol=1e-6)
    assert np.abs(inside).sum() > 0.1
    return model


def in_branch(x):
    e = energy(x).sum()
    found = either(x.sum() > -100, lambda: gradients(e, x), lambda: x)
    return found, gradients(e, x)


def in_branch_of_branch(x):
    e = energy(x).sum()
    yes = x.sum() > -100
    found = either(yes, lambda: either(yes, lambda: gradients(e * 2, x), lambda: x) * 3, lambda: x)
    return found, 6 * gradients(e, x)


def made_inside(x):
    h = x.sigmoid()
    found = either(x.sum() > -100, lambda: gradients(energy(h * x).sum(), x), lambda: x)
    return found, gradients(energy(h * x).sum(), x)


def second_order_inside(x):
    h = x.sigmoid()

    def then():
        slope = gradients(energy(h).sum(), x)
        return gradients((slope * slope).sum(), x)

    slope = gradients(energy(h).sum(), x)
    found = either(x.sum() > -100, then, lambda: x)
    return found, gradients((slope * slope).sum(), x)


def second_order_outside(x):
    e = energy(x.sigmoid()).sum()
    found = either(x.sum() > -100, lambda: gradients(e, x), lambda: x)
    slope = gradients(e, x)
    return gradients((found * found).sum(), x), gradients((slope * slope).sum(), x)


def jacobian_rows(x):
    y = energy(x) * x.sum()
    eye = current().add_constant(np.eye(5, dtype=np.float32))
    rows = scan(lambda _, seeds: ([], [gradients(y, x, seeds[0])]), [], [eye])[1][0]
    expected = [gradients(y[i], x).unsqueeze(0) for i in range(5)]
    return rows, op.Concat(*expected, axis=0)


def jacobian_rows_by_number(x):
    y = energy(x) * x.sum()

    def step(states, slices):
        return [states[0] + 1], [gradients(op.Gather(y, states[0], axis=0), x)]

    zero = current().add_constant(np.array(0))
    rows = scan(step, [zero], [x])[1][0]
    expected = [gradients(y[i], x).unsqueeze(0) for i in range(5)]
    return rows, op.Concat(*expected, axis=0)


def of_jacobian_rows(x):
    rows, expected = jacobian_rows(x)
    return gradients((rows * rows).sum(), x), gradients((expected * expected).sum(), x)


def implicit_fixed_point(x):
    """v = g + J' v by a loop: what the implicit function theorem says of z = f(z)."""
    z = x.tanh()
    f = (z * 0.3).tanh() + x
    steps = current().add_constant(np.array(30))
    v = repeat(lambda _, s: [gradients(f, z, s[0]) + 1], [z], steps)[0]
    slope = gradients(f.sum(), z)
    return v, 1 / (1 - slope)


def loop_in_loop(x):
    e = energy(x).sum()
    twice = current().add_constant(np.array(2))

    def inner(_, states):
        return [states[0] + gradients(e, x)]

    found = repeat(lambda _, s: [repeat(inner, s, twice)[0]], [x], twice)[0]
    return found, x + 4 * gradients(e, x)


def by_state(x):
    rate, steps = 0.1, current().add_constant(np.array(3))
    found = repeat(lambda _, s: [s[0] - rate * gradients(energy(s[0]).sum(), s[0])], [x], steps)[0]
    y = x
    for _ in range(3):
        y = y - rate * gradients(energy(y).sum(), y)
    return found, y


def with_optional_outputs_of_outer_nodes(x):
    """The rule of LayerNormalization reads outputs that the outer node does not declare yet."""
    y = op.LayerNormalization(x, np.array([1, 2, 3, 4, 5], np.float32))
    e = energy(y).sum()
    found = either(x.sum() > -100, lambda: gradients(e, x), lambda: x)
    return found, gradients(e, x)


def with_functions_of_the_schema(x):
    """Operators on the way that are replaced by their bodies, in the graph around the branch."""
    e = energy(op.Celu(x)).sum()
    found = either(x.sum() > -100, lambda: gradients(e, x), lambda: x)
    return found, gradients(e, x)


BUILDS = [
    in_branch,
    in_branch_of_branch,
    made_inside,
    second_order_inside,
    second_order_outside,
    jacobian_rows,
    jacobian_rows_by_number,
    of_jacobian_rows,
    implicit_fixed_point,
    loop_in_loop,
    by_state,
    with_optional_outputs_of_outer_nodes,
    with_functions_of_the_schema,
]


@pytest.mark.parametrize("build", BUILDS)
def test_gradients_in_bodies_are_those_outside(build):
    compared(build, (5,))


@pytest.mark.parametrize("opset", [11, 13, 21])
@pytest.mark.parametrize("build", [in_branch, jacobian_rows, loop_in_loop, by_state])
def test_in_other_opsets(build, opset):
    compared(build, (5,), opset=opset)


@pytest.mark.parametrize("build", [in_branch, jacobian_rows, by_state, second_order_inside])
def test_they_are_differentiated_in_turn(build, rng):
    model = forward(lambda x: build(x)[0], (5,))
    check_gradients(model, {"x": rng.normal(size=5)}, wrt=["x"])


def test_they_train(tmp_path, engine):
    """A penalty on the gradient by the input, built in a branch, trains the weight before it."""

    def build(x):
        score = (x @ weight("w", 4, 3)).tanh()
        found = either(x.sum() > -100, lambda: gradients(score.sum(), x), lambda: x)
        return score, found.square().mean()

    def penalised(score, slope):
        return blockdsl.loss.MSELoss()(score) + slope

    class Loss(blockdsl.Block):
        def build(self, score, slope):
            return penalised(score, slope)

    model = forward(build, ("n", 4))
    run_ = Run(generate(tmp_path, model, loss=Loss(), loss_input_names=None), engine)
    run_.train(normal(6, 4), normal(6, 3))


HIDDEN = {
    "state": lambda x: repeat(lambda _, s: [gradients(s[0].sum(), x)], [x * 2], op.Size(x)),
    "slice": lambda x: scan(lambda _, s: ([], [gradients(s[0].sum(), x)]), [], [x * x]),
    "slice beside the tensor": lambda x: scan(
        lambda _, s: ([], [gradients((s[0] * x).sum(), x)]), [], [x * x]
    ),
    "state of the loop around": lambda x: repeat(
        lambda _, s: [repeat(lambda _, t: [gradients(t[0].sum(), x)], s, op.Size(x))[0]],
        [x * 2],
        op.Size(x),
    ),
    "state, in a branch": lambda x: repeat(
        lambda _, s: [either(x.sum() > 0, lambda: gradients(s[0].sum(), x), lambda: x)],
        [x * 2],
        op.Size(x),
    ),
}


@pytest.mark.parametrize("build", HIDDEN.values(), ids=HIDDEN)
def test_earlier_steps_of_an_open_loop_are_an_error_and_not_zero(build):
    with blockdsl.empty_base():
        x = blockdsl.input("x", shape=("n",))
        with pytest.raises(GradientError, match="does not go back through earlier steps"):
            build(x)


def test_several_tensors_in_a_structure():
    with blockdsl.empty_base():
        x, z = (blockdsl.input(n, shape=("n",)) for n in "xz")
        found = blockdsl.gradients((x * z).sum(), {"x": x, "both": (x, z)})
    assert found == {"x": "x_grad", "both": ("x_grad", "z_grad")}


def test_a_constant_that_is_held_outlives_a_gradient():
    # Building a gradient removed every constant that no node read yet.
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", shape=("n",))
        held = current().add_constant(np.float32([2.5]))
        slope = gradients(energy(x).sum(), x)
        current().set_outputs([slope * held])
        current().check()
    assert run(handle.model, {"x": normal(3)})[0].shape == (3,)


@pytest.mark.parametrize("x", [(), 3, [None]])
def test_what_is_no_tensor_is_refused(x):
    with blockdsl.empty_base():
        y = blockdsl.input("y")
        with pytest.raises(GradientError, match="y must be a tensor and x a tensor, or a tuple"):
            gradients(y, x)
