"""The softmax family."""

from blockdsl.testing import Case, R

CASES = [
    *[
        Case(name, [R(2, 3, 4)], axis=axis, opset=opset)
        for name in ("Softmax", "LogSoftmax")
        for axis in (0, 1, 2)
        for opset in (7, 13)
    ],
    *[Case(name, [R(2, 3, 4)], opset=[7, 11, 13]) for name in ("Softmax", "LogSoftmax")],
    Case("Softmax", [R(2, 3, 4)], axis=-2, opset=[11, 13]),
    Case("LogSoftmax", [R(5)], axis=-1),
    Case("Softmax", [R(2, 3, low=-300, high=300)], name="large", rtol=1e-4),
    Case("LogSoftmax", [R(2, 3, low=-300, high=300)], name="large", order=1),
]
