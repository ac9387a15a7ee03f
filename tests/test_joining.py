"""The gradients of slices that lie side by side are joined, not padded and added."""

from collections import Counter

import numpy as np
import pytest

import blockdsl
from blockdsl import op
from blockdsl.gradient import build_gradients
from blockdsl.testing import check_gradients


def model(build, shape, opset):
    with blockdsl.empty_base(opset_version=opset) as handle:
        x = blockdsl.input("x", dtype=np.float64, shape=shape)
        x.graph.set_outputs([build(x)])
    return handle.model


def backward_operators(forward):
    graph = blockdsl.graph.Graph(type(forward).FromString(forward.SerializeToString()))
    count = len(graph.proto.graph.node)
    with blockdsl.graph.activate(graph):
        loss = graph.value(forward.graph.output[0].name).square().sum()
        build_gradients(graph, loss, ["x"])
    return Counter(node.op_type for node in graph.proto.graph.node[count:])


def rotated(x):
    return op.Concat(-x[..., 3:], x[..., :3], axis=-1) * 2 + 0 * x[..., 0:1]


def unrolled(x):
    state = x[:, 0]
    for step in range(1, 5):
        state = (state + x[:, step]).tanh()
    return state


def with_a_gap(x):
    return x[:, :2].exp().sum() + x[:, 3:].exp().sum()


def overlapping(x):
    return x[:, :3].exp().sum() + x[:, 2:].exp().sum()


def inner_part(x):
    return x[:, 1:2].exp().sum() + x[:, 2:4].tanh().sum()


def two_axes(x):
    return x[:1].exp().sum() + x[:, 1:].exp().sum()


@pytest.mark.parametrize("opset", [9, 17])
@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (rotated, ("batch", 6)),
        (unrolled, ("batch", 5)),
        (with_a_gap, (2, 5)),
        (overlapping, (2, 5)),
        (inner_part, (2, 5)),
        (two_axes, (2, 5)),
    ],
)
def test_gradient(build, shape, opset, rng):
    forward = model(build, shape, opset)
    feeds = {"x": rng.standard_normal([n if isinstance(n, int) else 3 for n in shape])}
    check_gradients(forward, feeds, order=2, rng=rng)


def test_steps_of_an_unrolled_loop_are_joined_once():
    found = backward_operators(model(unrolled, ("batch", 5), 17))
    assert found["Concat"] == 1
    assert found["Pad"] == 0


def test_what_is_not_side_by_side_is_added():
    assert backward_operators(model(with_a_gap, (2, 5), 17))["Pad"] == 2
    assert backward_operators(model(overlapping, (2, 5), 17))["Pad"] == 2
    assert backward_operators(model(inner_part, (2, 5), 17))["Pad"] == 1
