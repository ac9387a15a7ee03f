"""The gradients of ONNX's own node tests.

They are somebody else's inputs, for every operator: every attribute, optional input and rank that
the specification's authors thought of.
"""

import pytest
from onnx import TensorProto

from blockdsl.errors import GradientError
from blockdsl.gradient.registry import NO_GRADIENT
from blockdsl.testing import check_gradients, in_precision
from tests.corpus import float_tests
from tests.engines import runs
from tests.gradient_models import check_parity, in_type_of, with_gradients

pytestmark = pytest.mark.filterwarnings("ignore:.*does not influence")

CONSTANT = [t for t in float_tests() if ("", t.op_type) in NO_GRADIENT]
SMOOTH = [t for t in float_tests() if ("", t.op_type) not in NO_GRADIENT]


@pytest.mark.parametrize("test", SMOOTH, ids=str)
def test_equals_finite_differences(test, rng):
    try:
        check_gradients(test.model, test.feeds, test.float_outputs, test.float_inputs, rng=rng)
    except GradientError as error:
        expect_rule_to_come(error)


@pytest.mark.parametrize("test", SMOOTH, ids=str)
def test_runs_on_the_runtime(test, rng):
    single, double = (in_precision(test.model, t) for t in (TensorProto.FLOAT, TensorProto.DOUBLE))
    feeds = in_type_of(single, test.feeds)
    if not runs(single, feeds):
        pytest.skip("the runtime has no kernel for the operator itself")
    try:
        check_parity(single, double, feeds, test.float_outputs, test.float_inputs, rng)
    except GradientError as error:
        expect_rule_to_come(error)


@pytest.mark.parametrize("test", CONSTANT, ids=str)
def test_operators_without_derivative_say_so(test):
    with pytest.raises(GradientError, match="no derivative"):
        with_gradients(test.model, test.float_outputs, test.float_inputs)


def expect_rule_to_come(error):
    """A missing rule is an expected failure that names the operator; any other error is none."""
    if "There is no gradient rule for" not in str(error):
        raise error
    pytest.xfail(str(error).split(",")[0])
