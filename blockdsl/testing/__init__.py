"""For tests of rules, blocks and models: cases, gradient checks, tolerances.

`blockdsl.testing.strategies` has hypothesis strategies for random models; it needs hypothesis.
"""

from blockdsl.testing.cases import Case, R
from blockdsl.testing.gradients import check_gradients
from blockdsl.testing.precision import in_precision
from blockdsl.testing.reference import evaluate
from blockdsl.testing.tolerances import MismatchError, Tolerance, assert_close, tolerance

__all__ = [
    "Case",
    "MismatchError",
    "R",
    "Tolerance",
    "assert_close",
    "check_gradients",
    "evaluate",
    "in_precision",
    "tolerance",
]
