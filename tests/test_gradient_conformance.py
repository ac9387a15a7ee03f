"""The gradients of ONNX's own node tests.

They are somebody else's inputs, for every operator: every attribute, optional input and rank that
the specification's authors thought of.
"""

import pytest
from onnx import TensorProto

from blockdsl.errors import GradientError, GraphError
from blockdsl.gradient.registry import NO_GRADIENT
from blockdsl.testing import MismatchError, check_gradients, in_precision
from tests.corpus import float_tests
from tests.engines import runs
from tests.gradient_models import check_parity, in_type_of, with_gradients

pytestmark = pytest.mark.filterwarnings("ignore:.*does not influence")

CONSTANT = [t for t in float_tests() if ("", t.op_type) in NO_GRADIENT]
SMOOTH = [t for t in float_tests() if ("", t.op_type) not in NO_GRADIENT]


@pytest.mark.parametrize("test", SMOOTH, ids=str)
def test_equals_finite_differences(test, rng, request):
    def check(test):
        check_gradients(test.model, test.feeds, wrt=test.float_inputs, rng=rng)

    if request.node.get_closest_marker("kink"):
        with pytest.raises((MismatchError, ValueError)):  # the latter: outputs of another size
            in_either_form(check, test)
        test = test.moved(rng)
    in_either_form(check, test)


@pytest.mark.parametrize("test", SMOOTH, ids=str)
def test_runs_on_the_runtime(test, rng):
    def check(test):
        kinds = (TensorProto.FLOAT, TensorProto.DOUBLE)
        single, double = (in_precision(test.model, kind) for kind in kinds)
        feeds = in_type_of(single, test.feeds)
        if not runs(single, feeds):
            pytest.skip("the runtime has no kernel for the operator itself")
        check_parity(single, double, feeds, test.float_outputs, test.float_inputs, rng)

    in_either_form(check, test)


@pytest.mark.parametrize("test", CONSTANT, ids=str)
def test_operators_without_derivative_say_so(test):
    with pytest.raises(GradientError, match="no derivative"):
        with_gradients(test.model, test.float_outputs, test.float_inputs)


def in_either_form(check, test):
    """Axes and shapes are inputs in the corpus; a rule may ask for constants, if it says so.

    An operator without a rule is an expected failure that names it.
    """
    try:
        check(test)
    except GraphError as error:
        needs_constant(error)
        check(test.with_constants())
    except GradientError as error:
        if "There is no gradient rule for" in str(error):
            pytest.xfail(str(error).split(",")[0])
        needs_constant(error)
        check(test.with_constants())


def needs_constant(error):
    if not any(words in str(error) for words in ("a constant", "rank of", "known when the graph")):
        raise error
