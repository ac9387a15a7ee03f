"""Reductions."""

from blockdsl.testing import Case, R

POSITIVE = {"low": 0.3, "high": 2.0}

CASES = [
    Case("ReduceSum", [R(2, 3, 4), R(values=[1], static=True)], keepdims=0),
    Case("ReduceSum", [R(2, 3, 4), R(values=[-1, 0], static=True)]),
    Case("ReduceMean", [R(2, 3, 4), R(values=[1], static=True)], keepdims=0, opset=18),
    Case("ReduceMax", [R(2, 3, 4), R(values=[1, 2], static=True)], keepdims=0, order=1, opset=18),
    *[
        case
        for name, values, order in (
            ("ReduceSum", {}, 2),
            ("ReduceMean", {}, 2),
            ("ReduceMax", {}, 1),
            ("ReduceMin", {}, 1),
            ("ReduceProd", {}, 2),
            ("ReduceL1", {}, 2),
            ("ReduceL2", {}, 2),
            ("ReduceLogSum", POSITIVE, 2),
            ("ReduceLogSumExp", {}, 2),
            ("ReduceSumSquare", {}, 2),
        )
        for case in (
            Case(name, [R(2, 3, 4, **values)], order=order, opset=[7, 11, 13, 18]),
            Case(name, [R(2, 3, 4, **values)], axes=[1], order=order, opset=[7, 18]),
            Case(
                name, [R(2, 3, 4, **values)], axes=[-1, 0], keepdims=0, order=order, opset=[11, 18]
            ),
            Case(name, [R(2, 3, 4, **values)], keepdims=0, order=order),
            Case(name, [R(2, 3, 4, **values)], axes=[0], keepdims=0, order=order, opset=18),
            # The reference evaluator cannot take the last of these of a scalar.
            Case(
                name,
                [R(*([1] if name == "ReduceLogSumExp" else []), **values)],
                order=order,
                opset=18,
            ),
            Case(
                name,
                [R(2, 3, **values)],
                noop_with_empty_axes=1,
                order=order,
                opset=18,
                engines=False,
            ),
        )
    ],
    Case("ReduceMax", [R(2, 3)], axes=[1], order=1, opset=20),
    *[
        Case("ReduceProd", [R(values=rows)], axes=[1])
        for rows in (
            [[0.0, 2.0, 3.0], [0.0, 0.0, 2.0]],
            [[0.0, 0.0, 0.0], [1.0, 3.0, 2.0]],
            [[0.0, -2.0, 0.0], [4.0, 0.0, 0.5]],
        )
    ],
    Case("ReduceProd", [R(values=[[0.0, 2.0], [3.0, 0.0]])], opset=[7, 18]),
]
