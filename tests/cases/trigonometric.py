"""Trigonometric and hyperbolic functions and their inverses."""

import numpy as np

from blockdsl.testing import Case, R

CASES = [
    Case(name, [values], expected=function, opset=opset)
    for name, values, function, opset in (
        ("Sin", R(2, 3), np.sin, [7, 22]),
        ("Cos", R(2, 3), np.cos, [7, 22]),
        ("Tan", R(2, 3, low=-1, high=1), np.tan, [7, 22]),
        ("Asin", R(2, 3, low=-0.9, high=0.9), np.arcsin, [7, 22]),
        ("Acos", R(2, 3, low=-0.9, high=0.9), np.arccos, [7, 22]),
        ("Atan", R(2, 3), np.arctan, [7, 22]),
        ("Sinh", R(2, 3), np.sinh, [9, 22]),
        ("Cosh", R(2, 3), np.cosh, [9, 22]),
        ("Tanh", R(2, 3), np.tanh, [7, 17]),
        ("Asinh", R(2, 3), np.arcsinh, [9, 22]),
        ("Acosh", R(2, 3, low=1.2, high=3), np.arccosh, [9, 22]),
        ("Atanh", R(2, 3, low=-0.9, high=0.9), np.arctanh, [9, 22]),
    )
]
