"""Whole models, exported by PyTorch: the loss and every gradient are what PyTorch gets."""

import numpy as np
import pytest

from blockdsl.gradient import build_gradients
from blockdsl.graph import Graph, activate
from tests.engines import run
from tests.zoo import ENTRIES


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_loss_and_gradients(entry):
    graph = Graph(entry.model)
    with activate(graph):
        loss = entry.build_loss(graph.value)
        gradients = build_gradients(graph, loss, entry.parameters)
    graph.set_outputs([loss, *gradients.values()])
    graph.check()
    value, *found = run(graph.proto, entry.feeds(0))
    assert value == pytest.approx(entry.golden["loss0"][0], rel=1e-4)
    wrong = differences(entry, dict(zip(entry.parameters, found, strict=True)))
    assert not wrong


def differences(entry, found):
    """The gradients that are further off than 1e-3 of the largest entry, and by how much."""
    for names in entry.split_parameters:
        total = sum(oriented(found[name], found[names[0]]) for name in names)
        found |= {name: oriented(total, found[name]) for name in names}
    return {
        name: off
        for name, gradient in found.items()
        if (off := difference(gradient, entry.golden[f"grad.{name}"], name in entry.null_gradient))
        > 1e-3
    }


def difference(found, golden, is_null):
    scale = 1.0 if is_null else np.abs(golden).max()
    return float(np.abs(found - golden).max() / scale)


def oriented(array, like):
    """A tied weight is held a second time transposed."""
    return array if array.shape == like.shape else array.T
