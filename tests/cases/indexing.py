"""Operators that read from or write to places given by indices."""

import numpy as np

from blockdsl.testing import Case, R

FAR = np.iinfo(np.int64).max

CASES = [
    Case("Slice", [R(5, 4)], starts=[1], ends=[3], axes=[0], opset=[9, 10, 11, 17]),
    Case("Slice", [R(5, 4)], starts=[1], ends=[3], axes=[0], opset=7, order=1),
    Case("Slice", [R(5, 4)], starts=[1, 2], ends=[-1, FAR], opset=[9, 10, 17]),
    Case("Slice", [R(5, 4)], starts=[1, 2], ends=[-1, FAR], opset=7),
    Case("Slice", [R(5, 4)], starts=[-2], ends=[FAR], axes=[-1], opset=[10, 17]),
    Case("Slice", [R(5, 4)], starts=[-3], ends=[-1], axes=[0], opset=[9, 10, 17]),
    Case("Slice", [R(5, 4)], starts=[-9, 0], ends=[2, 9], axes=[0, 1], opset=[9, 17]),
    Case("Slice", [R(5, 4)], starts=[9], ends=[12], axes=[0], opset=[9, 17]),
    Case("Slice", [R(7, 4)], starts=[1], ends=[6], axes=[0], steps=[3], opset=[10, 11, 17]),
    Case("Slice", [R(7, 4)], starts=[0, 1], ends=[7, 4], axes=[0, 1], steps=[2, 2], opset=[10, 17]),
    Case("Slice", [R(5, 4)], starts=[-1], ends=[-FAR], axes=[0], steps=[-1], opset=[10, 17]),
    Case("Slice", [R(7, 4)], starts=[FAR, 9], ends=[1, 0], axes=[0, 1], steps=[-2, -1]),
    Case("Slice", [R(7, 4)], starts=[-2], ends=[-9], axes=[0], steps=[-3], opset=[10, 17]),
    Case("Slice", [R(5, 4), R(values=[1]), R(values=[3]), [0]], opset=[10, 11, 17]),
    Case(
        "Slice", [R(5, 4), R(values=[-2, 9]), R(values=[FAR, 0]), [1, 0], [1, -2]], opset=[10, 17]
    ),
    Case("Slice", [R(5, 4), R(values=np.array([1], np.int32)), R(values=np.array([3], np.int32))]),
    Case("Slice", [R(5, 4), [4, 0], [0, 3], R(values=[0, 1]), R(values=[-2, 1])]),
    Case("Slice", [R(0, 4)], starts=[1], ends=[3], axes=[1]),
    Case("Gather", [R(5, 2), R(2, 3, ints=(-5, 5))], opset=[11, 13, 17]),
    Case("Gather", [R(5, 2), R(2, 3, ints=(-5, 5))], opset=9, order=1),
    Case("Gather", [R(5, 2), R(4, ints=5)], opset=[9, 11, 13, 17]),
    Case("Gather", [R(2, 5, 3), R(4, ints=(-5, 5))], axis=1, opset=[9, 11, 17]),
    Case("Gather", [R(2, 5, 3, static=True), R(4, ints=(-5, 5))], axis=1, opset=7),
    Case("Gather", [R(2, 5, 3), R(2, 2, ints=3)], axis=-1, opset=[11, 17]),
    Case("Gather", [R(2, 3, 5, 2), R(2, 2, ints=3)], axis=1, opset=[11, 17]),
    Case("Gather", [R(5, 2), R(ints=(-5, 5))], opset=[11, 17]),
    Case("Gather", [R(5, 2), R(3, ints=5, dtype=np.int32)], opset=[11, 17]),
    Case("Gather", [R(300, 2), R(3, 7, ints=(-300, 300))], opset=[11, 17]),
    Case("Gather", [R(300, 2), R(3, 7, ints=(-300, 300))], opset=[7, 9]),
    Case("Gather", [R(2, 300), R(7, ints=300)], axis=1, opset=[11, 17]),
    Case("Gather", [R(2, 300), R(7, ints=300)], axis=1, opset=[9]),
    Case("Gather", [R(300), R(7, ints=4)], opset=[9, 11, 17]),
    Case("Gather", [R(5, 2), np.array(1)], opset=[9, 11, 17]),
    Case("Gather", [R(5, 2, static=True), R(2, 3, ints=(-5, 5))], opset=7),
    Case("Gather", [R(2, 5), np.array(-2)], axis=1, opset=[11, 17]),
    Case("Gather", [R(2, 5), [0, 2, 4]], axis=1, opset=[11, 17]),
    Case("Gather", [R(2, 5), [-1, -3]], axis=1, opset=[11, 17]),
    Case("Gather", [R(2, 5), [2, 0, 1, 4, 3]], axis=1, opset=[9, 17]),
    Case("Gather", [R(5, 2), [2, -2, 2]], opset=[11, 17]),
    Case("Gather", [R(4, 2), [[2, 3], [1, 0]]], opset=[11, 17]),
    Case("Gather", [R(5, 2), R(0, ints=5)]),
    Case("Gather", [R(2, 5), [2, 0, 1, 4, 3]], axis=1, opset=7),
    Case("GatherElements", [R(3, 4), R(3, 5, ints=(-4, 4))], axis=1, opset=[11, 13, 17]),
    Case("GatherElements", [R(3, 4), R(2, 2, ints=3, static=True)], opset=[11, 17]),
    Case("GatherElements", [R(3, 4, 2), R(3, 2, 2, ints=4)], axis=-2, opset=[11, 17]),
    Case("GatherElements", [R(4), R(6, ints=4, dtype=np.int32)]),
    Case("GatherND", [R(3, 4, 2), R(5, 2, ints=(-3, 3), static=True)], opset=[11, 12, 17]),
    Case("GatherND", [R(3, 4), R(2, 2, 2, ints=3, static=True)], opset=[11, 17]),
    Case("GatherND", [R(3, 4, 2), R(5, 1, ints=3, static=True)], opset=[11, 17]),
    Case("GatherND", [R(2, 3, 4), R(2, 5, 1, ints=(-3, 3), static=True)], batch_dims=1),
    Case("GatherND", [R(2, 3, 4, 2), R(2, 3, 1, ints=4, static=True)], batch_dims=2),
    Case("GatherND", [R(3, 4), R(2, ints=3, static=True)], opset=[12, 17]),
    Case("ScatterElements", [R(3, 4), R(values=[[0, -1], [2, 0]]), R(2, 2)], opset=[11, 17]),
    Case("ScatterElements", [R(3, 4), R(values=[[3, 0], [1, -2]]), R(2, 2)], axis=-1),
    Case("ScatterElements", [R(4), R(values=[1, 2]), R(2)], reduction="none"),
    Case("Scatter", [R(3, 4), R(values=[[0, 1], [2, 0]]), R(2, 2)], opset=9),
    Case("Scatter", [R(3, 4), R(values=[[0, 1], [2, 0]]), R(2, 2)], opset=10),
    Case("Scatter", [R(3, 2), R(values=[[0], [1], [0]]), R(3, 1)], axis=1, opset=9),
    Case("ScatterND", [R(3, 4, 2), R(values=[[0], [-1]], static=True), R(2, 4, 2)]),
    Case("ScatterND", [R(3, 4), R(values=[[0, 1], [2, -1]], static=True), R(2)], opset=[11, 17]),
    Case("ScatterND", [R(3, 4), R(values=[[[0], [2]]], static=True), R(1, 2, 4)]),
    *[
        case
        for reduction in ("add", "mul", "max", "min")
        for case in (
            Case(
                "ScatterElements",
                [R(3, 4), R(values=[[0, -1, 0], [2, 0, 0]]), R(2, 3)],
                axis=1,
                reduction=reduction,
                opset=[18, 16] if reduction in ("add", "mul") else 18,
            ),
            Case(
                "ScatterND",
                [R(3, 4), R(values=[[0, -1], [2, 0], [0, 3]], static=True), R(3)],
                reduction=reduction,
                opset=18,
            ),
            Case(
                "ScatterND",
                [R(3, 4), R(values=[[1], [-2]], static=True), R(2, 4)],
                reduction=reduction,
                opset=18,
            ),
        )
    ],
    Case(
        "ScatterElements",
        [R(values=[0.0, 0.0, 2.0, 3.0]), R(values=[0, 2, 2, 3]), R(values=[2.0, 0.0, 3.0, 0.0])],
        reduction="mul",
        order=1,
        name="zeros",
    ),
    Case("TensorScatter", [R(2, 5, 3), R(2, 2, 3), R(values=[1, 3])]),
    Case("TensorScatter", [R(2, 2, 5, 3), R(2, 2, 3, 3), R(values=[4, 1])], mode="circular"),
    Case("TensorScatter", [R(2, 3, 5), R(2, 3, 2)], axis=2),
    Case("Gather", [R(0, 5, 3), R(2, 2, ints=5)], axis=1),
]
