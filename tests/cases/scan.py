"""Running sums and products, and sequences of numbers."""

import numpy as np

from blockdsl.testing import Case, R

CASES = [
    *[
        Case("CumSum", [R(2, 4, 3), np.array(axis)], exclusive=exclusive, reverse=reverse)
        for axis, exclusive, reverse in ((1, 0, 0), (-1, 1, 0), (0, 0, 1), (1, 1, 1))
    ],
    Case("CumSum", [R(4), np.array(0)], opset=11),
    Case("CumSum", [R(2, 4), R(values=np.array(1))]),
    *[
        Case(
            "CumProd",
            [R(2, 4, 3), np.array(axis)],
            exclusive=exclusive,
            reverse=reverse,
            opset=26,
            engines=False,
        )
        for axis, exclusive, reverse in ((1, 0, 0), (-1, 1, 0), (0, 0, 1), (1, 1, 1))
    ],
    Case("CumProd", [R(values=[2.0, 0.0, 3.0, 0.0]), np.array(0)], opset=26, engines=False),
    Case("Range", [R(values=0.3), R(values=2.0), R(values=0.45)], wrt=[0, 2]),
    Case("Range", [R(values=2.0), R(values=-1.0), R(values=-0.7)], wrt=[0, 2], opset=11),
]
