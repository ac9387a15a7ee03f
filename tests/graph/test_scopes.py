"""Tensors of the bodies of branches and loops, used inside and outside of them."""

import numpy as np
import pytest
from onnx import helper

import blockdsl
from blockdsl.errors import BlockError
from blockdsl.graph import current, op
from blockdsl.graph.control import either, repeat, scan
from tests.engines import run

# A tensor of a body that was used outside of it was appended to the body, which was finished: the
# model failed later, in the checker, with a message that named neither.


def leak_from_branch(x):
    kept = []

    def then():
        kept.append(x.exp())
        return kept[0] + 1

    either(x.sum() > 0, then, lambda: x)
    return kept[0]


def leak_from_scan(x):
    kept = []

    def step(states, slices):
        kept.append(states[0] + slices[0])
        return [kept[0]], []

    scan(step, [x[0]], [x])
    return kept[0]


def leak_of_state(x):
    kept = []

    def step(_, states):
        kept.append(states[0])
        return [states[0] * 2]

    repeat(step, [x], current().add_constant(np.array(3)))
    return kept[0]


def leak_of_unused(x):
    kept = []

    def then():
        kept.append(x.exp())  # which the branch does not need: its node is removed
        return x + 1

    either(x.sum() > 0, then, lambda: x)
    return kept[0]


LEAKS = [leak_from_branch, leak_from_scan, leak_of_state, leak_of_unused]


def append_by_hand(leaked, x):
    current().proto.graph.node.append(helper.make_node("Neg", [str(leaked)], ["z"], "z"))
    current().sync()


class Identity(blockdsl.ForwardBlock):
    def build(self, x):
        return x


USES = {
    "operator": lambda leaked, x: op.Neg(leaked),
    "operator on the right": lambda leaked, x: op.Add(x, leaked),
    "operator of Python": lambda leaked, x: leaked * 2,
    "operator of Python on the right": lambda leaked, x: x - leaked,
    "method": lambda leaked, x: leaked.tanh(),
    "method with an axis": lambda leaked, x: leaked.sum(0),
    "index": lambda leaked, x: leaked[0],
    "as index": lambda leaked, x: x[leaked],
    "name": lambda leaked, x: op.Neg(str(leaked)),
    "node by hand": append_by_hand,
    "output": lambda leaked, x: current().set_outputs([leaked]),
    "output of a block": lambda leaked, x: Identity()(leaked),
    "another branch": lambda leaked, x: either(x.sum() > 0, lambda: leaked, lambda: x),
    "gradient": lambda leaked, x: blockdsl.gradients(x.sum(), leaked),
    "loss": lambda leaked, x: blockdsl.loss.MSELoss()(leaked),
    "input like it": lambda leaked, x: blockdsl.input_like(leaked, "z"),
}


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_tensor_of_a_body_is_refused_outside_of_it(leak, use):
    with blockdsl.empty_base():
        x = blockdsl.input("x", shape=("n", 3))
        leaked = leak(x)
        with pytest.raises(BlockError, match=r"exists only in the body '\w+': return it"):
            use(leaked, x)


def test_a_tensor_of_one_branch_is_refused_in_the_other():
    with blockdsl.empty_base():
        x = blockdsl.input("x", shape=("n",))
        kept = []

        def then():
            kept.append(x.exp())
            return kept[0]

        with pytest.raises(BlockError, match="exists only in the body 'then_branch'"):
            either(x.sum() > 0, then, lambda: kept[0])


def test_tensors_from_outside_are_used_in_bodies_at_any_depth():
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", shape=(4,))
        y = x.exp()

        def inner(_, states):
            return [either(y.sum() > 0, lambda: states[0] + y, lambda: states[0] - x)]

        def step(states, slices):
            return [states[0] + repeat(inner, [y], op.Size(x))[0] * slices[0]], []

        current().set_outputs([scan(step, [x], [x])[0][0]])
    array = np.array([0.5, -1, 2, 0], np.float32)
    expected = array + np.sum(5 * np.exp(array)[None] * array[:, None], 0)
    np.testing.assert_allclose(run(handle.model, {"x": array})[0], expected, rtol=1e-5)


def test_a_loss_in_a_branch_adds_its_target_to_the_model():
    # The input was added to the branch, which takes none.
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", shape=(4,))
        mse = blockdsl.loss.MSELoss()
        current().set_outputs([either(x.sum() > 0, lambda: mse(x), lambda: x.mean())])
        current().check()
    assert [i.name for i in handle.model.graph.input] == ["x", "target"]
    feeds = {"x": np.ones(4, np.float32), "target": np.zeros(4, np.float32)}
    assert run(handle.model, feeds)[0] == 1


def test_a_branch_may_use_a_domain_that_the_model_did_not():
    # The import was added to the branch, where no runtime looks for it.
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", shape=(4,))
        y = either(x.sum() > 0, lambda: op.ml.Binarizer(x, threshold=0.5), lambda: x)
        current().set_outputs([y])
        current().check()
    assert {o.domain for o in handle.model.opset_import} >= {"ai.onnx.ml"}
    array = np.array([0, 1, 0.25, 2], np.float32)
    assert run(handle.model, {"x": array})[0].tolist() == [0, 1, 0, 1]
