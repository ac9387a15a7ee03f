"""Arithmetic and functions applied element by element."""

import numpy as np
from onnx import TensorProto

from blockdsl.testing import Case, R

CASES = [
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
    Case("Div", [R(2, 3), R(3, low=0.3)], expected=np.divide, opset=[7, 17]),
    Case("Div", [R(3), R(2, 1, low=-3, high=-0.3)], expected=np.divide),
    Case("Neg", [R(2, 3)], expected=np.negative),
    Case("Abs", [R(2, 3)], expected=np.abs, opset=[7, 17]),
    Case("Exp", [R(2, 3)], expected=np.exp),
    Case("Log", [R(4, low=0.2)], expected=np.log),
    Case("Sqrt", [R(4, low=0.2)], expected=np.sqrt),
    Case("Reciprocal", [R(4, low=0.3)], expected=np.reciprocal),
    Case("Erf", [R(2, 3)], opset=[9, 17]),
    *[Case(name, [R(2, 3)]) for name in ("Ceil", "Floor", "Round", "Sign")],
    Case("Mod", [R(2, 3, low=-5, high=5), R(3, low=0.6, high=2)], fmod=1, expected=np.fmod),
    Case("Mod", [R(2, 3, low=-5, high=5), R(3, low=-2, high=-0.6)], fmod=1, opset=[10, 13]),
    Case("Mod", [R(2, 3, low=-5, high=5), R(1, low=-2, high=-0.6)], opset=28, engines=False),
    Case("Sum", [R(2, 3), R(3), R(2, 1)], opset=[8, 17]),
    Case("Sum", [R(2, 3)]),
    Case("Mean", [R(2, 3), R(3), R(2, 1)], opset=[8, 17]),
    Case("Mean", [R(2, 3)]),
    *[
        Case(name, inputs, opset=opset, order=1)
        for name in ("Max", "Min")
        for inputs, opset in (
            ([R(2, 3), R(3)], [8, 11, 12, 17]),
            ([R(2, 3), R(2, 1), R()], [8, 17]),
            ([R(2, 3)], [7, 17]),
            ([R(2, 3), R(2, 3)], 7),
            ([R(2, 3), np.array(0.2)], [8, 17]),
        )
    ],
    Case("Clip", [R(2, 3)], min=-0.5, max=0.5, opset=[7, 9, 10]),
    Case("Clip", [R(2, 3)], opset=[7, 17]),
    Case("Clip", [R(2, 3), R(values=-0.5), R(values=0.6)], opset=[11, 12, 17]),
    Case("Clip", [R(2, 3), R(values=-0.5), None]),
    Case("Clip", [R(2, 3), None, R(values=0.4)]),
    Case("Clip", [R(2, 3), R(values=0.4), R(values=-0.4)]),
    *[
        Case("Pow", [R(2, 3, low=0.3), np.array(n)], opset=opset)
        for n, opset in ((2.0, [7, 12, 17]), (3.0, 17), (0.5, 17), (1.0, 17), (-1.0, 17), (2.5, 17))
    ],
    Case("Pow", [R(2, 3), np.array(2)], expected=np.square),
    Case("Pow", [R(2, 3, away=0.4), np.array(-3, np.int32)]),
    Case("Pow", [R(2, 3), np.array(0.0)]),
    Case("Pow", [R(2, 3, low=0.3), R(3)], expected=np.power, opset=[7, 12, 17]),
    Case("Pow", [R(3), R(2, 3, ints=(-2, 4))]),
    Case("Pow", [np.array(2.0), R(2, 3)]),
    Case("Pow", [R(3, low=0.3), [1.0, 2.0, -0.5]]),
    Case("Pow", [R(3, low=0.3), R(2, 1, dtype=np.float32)], engines=True),
    Case("Cast", [R(2, 3)], to=TensorProto.DOUBLE, opset=[9, 13, 17]),
    Case("CastLike", [R(2, 3), R(1, dtype=np.float64)], opset=[15, 19]),
]
