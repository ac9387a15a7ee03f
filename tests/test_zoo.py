"""Whole models, exported by PyTorch: the loss and every gradient are what PyTorch gets."""

import numpy as np
import pytest
from onnx import TensorProto

from blockdsl.gradient import build_gradients
from blockdsl.graph import Graph, activate
from blockdsl.testing import evaluate, in_precision
from tests.engines import run
from tests.gradient_models import in_type_of
from tests.zoo import ENTRIES

ON_A_KINK = {"hf_mobilenetv2.legacy"}
"""Rounding in float32 puts an activation of these on the other side of a kink, in one runtime or
another: they are compared in float64, in which PyTorch's gradients were computed."""


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_loss_and_gradients(entry):
    wide = entry.name in ON_A_KINK
    graph = Graph(in_precision(entry.model, TensorProto.DOUBLE) if wide else entry.model)
    with activate(graph):
        loss = entry.build_loss(graph.value)
        gradients = build_gradients(graph, loss, entry.trained)
    graph.set_outputs([loss, *gradients.values()])
    graph.check()
    feeds = in_type_of(graph.proto, entry.feeds(0))
    value, *found = evaluate(graph.proto)(feeds) if wide else run(graph.proto, feeds)
    assert value == pytest.approx(entry.golden["loss0"][0], rel=1e-4)
    assert differences(entry, dict(zip(entry.trained, found, strict=True))) == {}


def differences(entry, found):
    """The gradients that are further off than 1e-3 of the largest entry, and by how much."""
    for names in entry.split_parameters:
        total = sum(oriented(found[name], found[names[0]]) for name in names)
        found |= {name: oriented(total, found[name]) for name in names}
    off = {
        name: difference(found[name], entry.golden[f"grad.{name}"], name in entry.null_gradient)
        for name in entry.parameters
    }
    return {name: difference for name, difference in off.items() if difference > 1e-3}


def difference(found, golden, is_null):
    scale = 1.0 if is_null else np.abs(golden).max()
    return float(np.abs(found - golden).max() / scale)


def oriented(array, like):
    """A tied weight is held a second time transposed."""
    return array if array.shape == like.shape else array.T
