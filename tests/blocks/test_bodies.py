"""Blocks with parameters and inputs in the bodies of loops and branches."""

from __future__ import annotations

import numpy as np
import pytest

import blockdsl
from blockdsl import blocks, op
from blockdsl.artifacts import LossType, OptimType
from blockdsl.graph import activate, current
from blockdsl.graph.control import choose, close, counted, either, repeat, scan
from tests.runs import Run, generate

X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
TARGET = np.zeros_like(X)
STEPS = np.stack([X, 2 * X, -X])


class Net(blockdsl.ForwardBlock):
    """A layer that a function calls, in a body or not."""

    def __init__(self, calls):
        self.layer = blocks.Sequential(blocks.Linear(4, 4), blocks.LayerNorm(4))
        self.calls = calls

    def build(self, *inputs):
        return self.calls(self.layer, *inputs)


def three():
    return op.Identity(np.array(3))


def loop(layer, x):
    return repeat(lambda _, states: [states[0] + 0.1 * layer(states[0])], [x], three())[0]


def loop_with_outputs(layer, x):
    step = lambda _, states: ([states[0] + 0.1 * layer(states[0])], [states[0]])  # noqa: E731
    return counted(step, [x], three())[0][0]


def loop_by_hand(layer, x):
    for _ in range(3):
        x = x + 0.1 * layer(x)
    return x


def steps(layer, x):
    del x
    whole = blockdsl.input("steps", shape=(3, 5, 4))
    return scan(lambda s, i: ([s[0] + layer(i[0])], [s[0]]), [0 * whole[0]], [whole])[0][0]


def steps_by_hand(layer, x):
    del x
    whole = blockdsl.input("steps", shape=(3, 5, 4))
    return layer(whole[0]) + layer(whole[1]) + layer(whole[2])


def branch(layer, x):
    return either(x.sum() < 1e9, lambda: layer(x), lambda: -layer(x))


def branches(layer, x):
    return choose(x.sum() < 1e9, lambda: [layer(x), x], lambda: [x, layer(x)])[0]


def raw_branch(layer, x):
    """As code that makes bodies on its own."""
    bodies = {}
    for name, sign in (("then_branch", 1.0), ("else_branch", -1.0)):
        with current().body(name) as child, activate(child):
            close(child, [sign * layer(x)])
        bodies[name] = child.proto.graph
    return op.If(x.sum() < 1e9, **bodies, outputs=1)[0]


def branch_by_hand(layer, x):
    return layer(x)


def nested(layer, x):
    step = lambda _, states: [states[0] + 0.1 * branch(layer, states[0])]  # noqa: E731
    return repeat(step, [x], three())[0]


CALLS = [
    (loop, loop_by_hand),
    (loop_with_outputs, loop_by_hand),
    (nested, loop_by_hand),
    (steps, steps_by_hand),
    (branch, branch_by_hand),
    (branches, branch_by_hand),
    (raw_branch, branch_by_hand),
]
PARAMETERS = [
    *("Net/layer/blocks.0.weight", "Net/layer/blocks.0.bias"),
    *("Net/layer/blocks.1.weight", "Net/layer/blocks.1.bias"),
]


def trained(folder, engine, calls, opset):
    net = Net(calls)
    with blockdsl.empty_base(opset_version=opset):
        net(blockdsl.input("x", shape=("N", 4)))
    model = net.to_model_proto()
    folder.mkdir()
    run = Run(generate(folder, model, loss=LossType.MSELoss, optimizer=OptimType.SGD), engine)
    feeds = {"x": X, "steps": STEPS, "target": TARGET}
    batch = [feeds[name] for name in run.module.input_names()]
    losses = run.train(*batch, steps=3, rate=0.1)
    return (
        [t.name for t in model.graph.initializer if "/" not in t.name or "Net" in t.name],
        losses,
        run.values(),
    )


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 17, 21])
@pytest.mark.parametrize(("calls", "by_hand"), CALLS, ids=[calls.__name__ for calls, _ in CALLS])
def test_parameters_belong_to_the_model_and_train(tmp_path, engine, calls, by_hand, opset):
    # They lay in the body, where nothing trained them.
    names, losses, values = trained(tmp_path / "body", engine, calls, opset)
    assert names == PARAMETERS
    _, expected, expected_values = trained(tmp_path / "flat", engine, by_hand, opset)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert sorted(values) == sorted(PARAMETERS)
    for name, value in values.items():
        np.testing.assert_allclose(value, expected_values[name], rtol=1e-3, atol=1e-5)


def test_a_block_is_shared_by_a_body_and_the_graph_around_it():
    layer = blocks.Linear(4, 4)
    with blockdsl.empty_base() as handle:
        x = layer(blockdsl.input("x", shape=("N", 4)))
        y = either(x.sum() > 0, lambda: layer(x), lambda: x @ layer.weight)
        layer(y)
        other = either(x.sum() > 0, lambda: blocks.Linear(4, 4)(y), lambda: y)
        assert other.shape == ("N", 4)
    names = [t.name for t in handle.model.graph.initializer if "." in t.name and "/" not in t.name]
    assert names == ["Linear.weight", "Linear.bias", "Linear_1.weight", "Linear_1.bias"]


def test_inputs_belong_to_the_model():
    # They became inputs of the body, which nothing feeds: the model was not valid.
    loss = blockdsl.loss.MSELoss()
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", shape=("N", 4))
        y = either(x.sum() > 0, lambda: loss(x), lambda: blockdsl.input("other", shape=()))
        current().set_outputs([y])
        current().check()
    assert [value.name for value in handle.model.graph.input] == ["x", "target", "other"]
