"""Determinants."""

from blockdsl.testing import Case, R

CASES = [
    Case("Det", [R(1, 1, static=True)], opset=[11, 22]),
    Case("Det", [R(2, 2, static=True)], opset=[11, 22]),
    Case("Det", [R(2, 3, 3)], symbolic=False),
    Case("Det", [R(2, 1, 4, 4)], symbolic=False, order=1),
    Case("Det", [R(values=[[1.0, 2.0], [2.0, 4.0]])], symbolic=False, name="singular"),
]
