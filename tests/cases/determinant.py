"""Determinants."""

from blockdsl.testing import Case, R

CASES = [
    Case("Det", [R(1, 1)], opset=[11, 22]),
    Case("Det", [R(2, 2)], opset=[11, 22]),
    Case("Det", [R(2, 1, 1)]),
    Case("Det", [R(2, 3, 3)]),
    Case("Det", [R(2, 1, 4, 4)], order=1),
    Case("Det", [R(values=[[1.0, 2.0], [2.0, 4.0]])], name="singular"),
    Case("Det", [R(values=[[1.0, 2, 3], [2, 4, 6], [3, 6, 9]])], order=1, name="of rank one"),
]
