"""Gradients where numbers overflow or vanish: the true ones, and never NaN for a finite one."""

import numpy as np
import pytest

import blockdsl
from blockdsl.graph import current, empty_base, op
from blockdsl.testing import evaluate
from tests.engines import loads_opset, run
from tests.extremes import EXTREMES
from tests.gradient_models import with_gradients

STEPS = (("q", 3), ("k", 5), ("v", 5))


def gradients(extreme, dtype, runner):
    """The gradients of the sum of a case's outputs."""
    case = extreme.case
    model = case.model(dtype)
    outputs = case.differentiated(model)
    feeds = case.feeds(np.random.default_rng(0), dtype)
    shapes = [value.shape for value in evaluate(model)(feeds)]
    for output, shape in zip(outputs, shapes, strict=False):
        feeds[f"{output}_seed"] = np.ones(shape, dtype)
    return runner(with_gradients(model, outputs, case.wrt_names(), check=False), feeds)


def on_reference(model, feeds):
    return evaluate(model)(feeds)


@pytest.mark.parametrize("extreme", [e for e in EXTREMES if e.double], ids=str)
def test_in_double_precision(extreme):
    found = gradients(extreme, np.float64, on_reference)
    for got, true in zip(found, extreme.gradients, strict=False):
        compare(got, true, rtol=1e-5)


@pytest.mark.parametrize("extreme", [e for e in EXTREMES if e.half], ids=str)
def test_in_half_precision(extreme):
    """Its largest number is 65504: squares overflow early, and no NaN comes of it."""
    found = gradients(extreme, np.float16, on_reference)
    for got, true in zip(found, extreme.gradients, strict=False):
        finite = np.broadcast_to(np.isfinite(true), got.shape)
        assert np.isfinite(got[finite]).all()


@pytest.mark.parametrize("extreme", EXTREMES, ids=str)
def test_on_the_runtime(extreme):
    if not loads_opset(extreme.case.opset):
        pytest.skip(f"the runtime does not load opset {extreme.case.opset}")
    found = gradients(extreme, np.float32, run)
    for got, true in zip(found, extreme.gradients, strict=False):
        compare(got, true, rtol=1e-4)


def test_an_empty_batch_in_fused_attention():
    """A dimension cannot be worked out from the others where one of them is zero."""
    with empty_base(17) as handle:
        q, k, v = (blockdsl.input(name, shape=("batch", steps, 8)) for name, steps in STEPS)
        current().set_outputs([op.microsoft.MultiHeadAttention(q, k, v, num_heads=2)])
    model = with_gradients(handle.model, [handle.model.graph.output[0].name], ["q", "k", "v"])
    found = run(model, {i.name: np.zeros((0, *_sizes(i)), np.float32) for i in model.graph.input})
    assert [x.shape for x in found[:3]] == [(0, 3, 8), (0, 5, 8), (0, 5, 8)]


def _sizes(info):
    return [d.dim_value for d in info.type.tensor_type.shape.dim[1:]]


def compare(got, true, rtol):
    known = np.broadcast_to(~np.isnan(true), got.shape)
    true = np.broadcast_to(true, got.shape)
    np.testing.assert_allclose(got[known], true[known], rtol=rtol, atol=1e-6)
