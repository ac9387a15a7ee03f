"""Elementwise operators and the undoing of broadcasts."""

from __future__ import annotations

import numpy as np

from tests.training_ops.calls import Call, F, I, drawing

R, _ = drawing(2)


def calls() -> list[Call]:
    a, b, c, dy = R(2, 3), R(2, 3), R(2, 3), R(2, 3)
    scales = {"scale_0": 0.5, "scale_1": 2.0}
    three = {**scales, "scale_2": 3.0}
    mask = np.array([[True, False, True], [False, True, True]])
    calls = [
        Call("DivGrad", [R(2, 3), R(2, 3), R(2, 3, low=0.5)], 2),
        Call("DivGrad", [R(2, 3), R(2, 3), R(3, low=0.5)], 2, note="broadcast-b"),
        Call("DivGrad", [R(2, 3), R(2, 1), R(2, 3, low=0.5)], 2, note="broadcast-a"),
        Call("Scale", [R(2, 3), np.array(4, np.int64)], attributes={"scale_down": 1}),
        Call("Scale", [R(2, 3), np.array([4.0], np.float32)], note="up"),
        Call("ScaledSum", [a, b], 1, scales, expected=[a / 2 + b * 2], note="two"),
        Call("ScaledSum", [a, b, c], 1, three, expected=[a / 2 + b * 2 + c * 3], note="three"),
        Call("BatchScale", [a], 2, scales, expected=[a / 2, a * 2], note="two"),
        Call("BatchScale", [a], 3, three, expected=[a / 2, a * 2, a * 3], note="three"),
        Call("DropoutGrad", [R(2, 3), mask, F(0.5), np.array(True)]),
        Call(
            "DropoutGrad",
            [dy, mask | True, F(0.5), np.array(False)],
            expected=[dy],
            note="evaluation",
        ),
        Call("ZeroGradient", [R(2, 3), R(1)]),
        Call("FakeQuant", [R(4, 5, high=3.0), F(0.05), F(10)], 2),
        Call(
            "FakeQuant",
            [R(4, 5), F(0.05), F(3)],
            2,
            {"quant_min": 0, "quant_max": 15},
            note="limits",
        ),
        Call("FakeQuantGrad", [R(2, 3), mask]),
    ]
    for one, other in (([2, 3], [3]), ([2, 3], [2, 3]), ([4, 1], [1, 4, 3]), ([1], [1, 1, 5])):
        note = f"{one}{other}"
        calls.append(Call("BroadcastGradientArgs", [I(*one), I(*other)], 2, note=note))
    calls.append(Call("BroadcastGradientArgs", [I(2, 3), I(3)], [False, True], note="second"))
    calls += [
        Call("ReduceSumTraining", [R(2, 3, 4), I(0, 2)], 1, {"keepdims": k}, note=f"keepdims{k}")
        for k in (0, 1)
    ]
    empty = {"noop_with_empty_axes": 1}
    calls.append(Call("ReduceSumTraining", [R(2, 3), I()], 1, empty, note="noop"))
    return calls
