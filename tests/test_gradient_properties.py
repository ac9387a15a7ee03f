"""What holds of every gradient, on random models."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, helper

from blockdsl.graph.walk import rename_tensors
from blockdsl.testing import assert_close, check_gradients, evaluate, strategies
from tests.gradient_models import with_gradients

pytestmark = pytest.mark.filterwarnings("ignore:.*does not influence")


def copied(model):
    return ModelProto.FromString(model.SerializeToString())


def outputs_of(model):
    return [o.name for o in model.graph.output]


def seeds_for(drawn, rng):
    """A random cotangent for each output."""
    values = evaluate(drawn.model)(drawn.feeds)
    names = outputs_of(drawn.model)
    return {f"{n}_seed": rng.standard_normal(v.shape) for n, v in zip(names, values, strict=True)}


def pullback(model):
    """From feeds and the cotangents of the outputs to the gradient by each input."""
    wrt = [i.name for i in model.graph.input]
    run = evaluate(with_gradients(model, outputs_of(model), wrt))
    return lambda feeds, seeds: dict(zip(wrt, run({**feeds, **seeds}), strict=False))


def assert_equal(found, expected):
    for name, gradient in expected.items():
        assert_close(found[name], gradient, gradient=True, what=f"the gradient by {name!r}")


@given(strategies.models())
def test_finite_differences_agree(drawn):
    check_gradients(drawn.model, drawn.feeds)


@given(strategies.models(max_nodes=3))
def test_finite_differences_of_gradients_agree(drawn):
    check_gradients(drawn.model, drawn.feeds, order=2)


@given(strategies.models(), st.floats(-2, 2), st.floats(-2, 2), st.integers(0, 99))
def test_linear_in_the_seed(drawn, a, b, number):
    rng = np.random.default_rng(number)
    first, second = seeds_for(drawn, rng), seeds_for(drawn, rng)
    mixed = {name: a * first[name] + b * second[name] for name in first}
    pull = pullback(drawn.model)
    g, h, both = (pull(drawn.feeds, seeds) for seeds in (first, second, mixed))
    assert_equal(both, {name: a * g[name] + b * h[name] for name in g})


@given(strategies.models(), st.integers(0, 99))
def test_uses_add_up(drawn, number):
    """One tensor fed to all inputs of its shape gets the sum of what they would get."""
    seeds = seeds_for(drawn, np.random.default_rng(number))
    first = next(iter(drawn.feeds))
    same = [n for n, x in drawn.feeds.items() if x.shape == drawn.feeds[first].shape]
    feeds = {n: drawn.feeds[first] if n in same else x for n, x in drawn.feeds.items()}
    apart = pullback(drawn.model)(feeds, seeds)
    tied = copied(drawn.model)
    for node in tied.graph.node:
        rename_tensors(node, dict.fromkeys(same, first))
    together = pullback(tied)(feeds, seeds)
    assert_equal(together, {first: sum(apart[name] for name in same)})


@given(strategies.models())
def test_names_are_the_same_on_every_build(drawn):
    wrt = [i.name for i in drawn.model.graph.input]
    one, other = (with_gradients(drawn.model, outputs_of(drawn.model), wrt) for _ in range(2))
    assert one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)


@given(strategies.models(), st.data())
def test_an_identity_changes_nothing(drawn, data):
    seeds = seeds_for(drawn, np.random.default_rng(0))
    longer = copied(drawn.model)
    place = data.draw(st.integers(0, len(longer.graph.node) - 1), label="place")
    node = longer.graph.node[place]
    slot = data.draw(st.sampled_from([i for i, n in enumerate(node.input) if n]), label="slot")
    identity = helper.make_node("Identity", [node.input[slot]], ["passed on"], name="passed on")
    node.input[slot] = "passed on"
    longer.graph.node.insert(place, identity)
    expected = pullback(drawn.model)(drawn.feeds, seeds)
    assert_equal(pullback(longer)(drawn.feeds, seeds), expected)
