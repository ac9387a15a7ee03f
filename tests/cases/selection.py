"""Operators that choose among elements."""

import numpy as np

from blockdsl.testing import Case, R

CASES = [
    Case("Where", [R(2, 3, dtype=bool), R(2, 3), R(2, 3)], expected=np.where, opset=[9, 17]),
    Case("Where", [R(3, dtype=bool), R(2, 1), R()], expected=np.where),
    Case("Where", [R(2, 1, dtype=bool), R(3), R(2, 3)], expected=np.where),
    Case("TopK", [R(3, 5), [2]], axis=1, opset=[10, 11, 24], of=[0]),
    Case("TopK", [R(5, 3), [3]], axis=0, largest=0, of=[0]),
    Case("TopK", [R(2, 5), R(values=[2])], of=[0]),
    Case("TopK", [R(3, 5)], k=2, opset=[7, 9], of=[0]),
    Case("Compress", [R(3, 4), R(values=[True, False, True], static=True)], axis=0, opset=[9, 11]),
    Case("Compress", [R(3, 4), R(values=[False, True])], axis=-1),
    Case("Compress", [R(3, 4), R(values=[False, True, True, False, True])], opset=[9, 17]),
    Case("Unique", [R(5)], outputs=1),
    Case("Unique", [R(3, 4)], outputs=4, of=[0]),
    Case("Unique", [R(5)], sorted=0, outputs=1),
    Case("Unique", [R(3, 4)], axis=1, outputs=1),
    Case("Unique", [R(3, 4)], axis=-1, outputs=2, of=[0]),
    Case("OneHot", [R(2, 3, ints=(-4, 4)), np.array(4), R(2)], opset=[9, 11]),
    Case("OneHot", [R(3, ints=4), np.array(4), R(2)], axis=0),
]
