"""Reductions."""

from blockdsl.testing import Case, R

CASES = [
    Case("ReduceSum", [R(2, 3, 4)], opset=[7, 11, 17]),
    Case("ReduceSum", [R(2, 3, 4)], axes=[1], opset=[7, 11, 17]),
    Case("ReduceSum", [R(2, 3, 4)], axes=[-1, 0], keepdims=0, opset=[11, 17]),
    Case("ReduceSum", [R(2, 3, 4), R(values=[1], static=True)]),
    Case("ReduceSum", [R(2, 3)], noop_with_empty_axes=1),
]
