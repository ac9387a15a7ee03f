"""The gradient of every case of the table."""

import numpy as np
import pytest

from blockdsl.testing import check_gradients
from tests.cases import CASES
from tests.engines import loads_opset, run, runs
from tests.gradient_models import check_parity, with_gradients

pytestmark = pytest.mark.filterwarnings("ignore:.*does not influence")

SHAPES = pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])


@SHAPES
@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_finite_differences(case, symbolic, rng):
    if symbolic and not case.symbolic:
        pytest.skip("the case has static shapes only")
    model, feeds = case.model(np.float64, symbolic), case.feeds(rng, np.float64)
    outputs = case.differentiated(model)
    check_gradients(model, feeds, outputs, case.wrt_names(), case.order, rng, rtol=case.rtol)


@SHAPES
@pytest.mark.parametrize("case", [c for c in CASES if c.engines], ids=str)
def test_runs_on_the_runtime(case, symbolic, rng):
    if not loads_opset(case.opset):
        pytest.skip(f"the runtime does not load opset {case.opset}")
    if symbolic and not case.symbolic:
        pytest.skip("the case has static shapes only")
    single, double = case.model(np.float32, symbolic), case.model(np.float64, symbolic)
    outputs = case.differentiated(single)
    check_parity(single, double, case.feeds(rng), outputs, case.wrt_names(), rng, case.parity)


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.op_type == "Resize" and not c.engines], ids=str
)
def test_resampling_is_transposed_as_the_runtime_does_it(case, rng):
    """It resamples some images otherwise than ONNX says, and is linear in them all the same."""
    model, feeds = case.model(np.float32), case.feeds(rng)
    if not loads_opset(case.opset) or not runs(model, feeds):
        pytest.skip("the runtime does not run the operator itself")
    (y,) = run(model, feeds)
    (name,) = case.differentiated(model)
    seed = rng.standard_normal(y.shape).astype(np.float32)
    dx, _ = run(with_gradients(model, [name], ["X"]), {**feeds, f"{name}_seed": seed})
    np.testing.assert_allclose(np.vdot(dx, feeds["X"]), np.vdot(seed, y), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_builds_in_half_precision(case):
    """A constant of the wrong float type anywhere makes the full check fail."""
    model = case.model(np.float16)
    with_gradients(model, case.differentiated(model), case.wrt_names())
