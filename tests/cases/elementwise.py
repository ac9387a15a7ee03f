"""Arithmetic and functions applied element by element."""

import numpy as np

from blockdsl.testing import Case, R

CASES = [
    Case("Identity", [R(2, 3)]),
    *[
        Case(name, shapes, expected=function, opset=[7, 17])
        for name, function in (
            ("Add", np.add),
            ("Sub", np.subtract),
            ("Mul", np.multiply),
        )
        for shapes in (
            [R(2, 3), R(2, 3)],
            [R(2, 3), R(3)],
            [R(1, 3), R(2, 1)],
            [R(), R(2, 3)],
        )
    ],
    Case("Div", [R(2, 3), R(3, low=0.3)], expected=np.divide),
    Case("Div", [R(3), R(2, 1, low=-3, high=-0.3)], expected=np.divide),
    Case("Neg", [R(2, 3)], expected=np.negative),
    Case("Abs", [R(2, 3)], expected=np.abs),
    Case("Relu", [R(2, 3)], expected=lambda x: np.maximum(x, 0), opset=[7, 17]),
    Case("Exp", [R(2, 3)], expected=np.exp),
    Case("Log", [R(4, low=0.2)], expected=np.log),
    Case("Sqrt", [R(4, low=0.2)], expected=np.sqrt),
    Case("Sigmoid", [R(2, 3)], expected=lambda x: 1 / (1 + np.exp(-x))),
    Case("Tanh", [R(2, 3)], expected=np.tanh),
]
