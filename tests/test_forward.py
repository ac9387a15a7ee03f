"""The value of every case: by NumPy where a row says how, and on ONNX Runtime."""

import numpy as np
import pytest

from blockdsl.testing import assert_close, evaluate
from tests.cases import CASES
from tests.engines import loads_opset, run


@pytest.mark.parametrize("case", [c for c in CASES if c.expected], ids=str)
def test_equals_numpy(case, rng):
    feeds = case.feeds(rng, np.float64)
    wanted = case.expected(*feeds.values())
    wanted = wanted if isinstance(wanted, tuple | list) else [wanted]
    for got, value in zip(evaluate(case.model(np.float64))(feeds), wanted, strict=True):
        assert_close(got, value)


@pytest.mark.parametrize("case", [c for c in CASES if c.engines], ids=str)
def test_equals_runtime(case, rng):
    if not loads_opset(case.opset):
        pytest.skip(f"the runtime does not load opset {case.opset}")
    feeds = case.feeds(rng)
    model = case.model()
    for got, value in zip(run(model, feeds), evaluate(model)(feeds), strict=True):
        assert_close(got, value, rtol=case.parity)
