"""Operators that choose among elements."""

import numpy as np

from blockdsl.testing import Case, R

CASES = [
    Case("Where", [R(2, 3, dtype=bool), R(2, 3), R(2, 3)], expected=np.where, opset=[9, 17]),
    Case("Where", [R(3, dtype=bool), R(2, 1), R()], expected=np.where),
    Case("Where", [R(2, 1, dtype=bool), R(3), R(2, 3)], expected=np.where),
]
