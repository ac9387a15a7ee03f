"""Reading from places, joining and cutting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import helper

from tests.training_ops.calls import Call, I, drawing

R, _ = drawing(4)


def calls() -> list[Call]:
    calls = [
        Call("GatherGrad", [I(4, 3), I(1, 1, 3), R(3, 3)], attributes={"axis": 0}),
        Call("GatherGrad", [I(2, 5), I([0, 2], [2, -1]), R(2, 2, 2)], 1, {"axis": 1}, note="axis"),
        Call("GatherGrad", [I(4, 3), np.array(2), R(3)], 1, {"axis": 0}, note="scalar"),
        Call("GatherGrad", [I(600, 3), I(1, 1, 599), R(3, 3)], 1, {"axis": 0}, note="many"),
        Call("GatherElementsGrad", [R(2, 2), I(4, 2), I([0, 3], [0, 1])], 1, {"axis": 0}),
        Call(
            "GatherElementsGrad",
            [R(2, 3), I(2, 4), I([0, 0, 1], [3, 1, -1])],
            1,
            {"axis": 1},
            note="axis",
        ),
        Call("GatherNDGrad", [I(4, 3), I([1, 2], [1, 2], [3, 0]), R(3)], 1, {"batch_dims": 0}),
        Call("GatherNDGrad", [I(4, 3), I([1], [3]), R(2, 3)], 1, {"batch_dims": 0}, note="rows"),
        Call(
            "GatherNDGrad", [I(2, 4, 3), I([1], [3]), R(2, 3)], 1, {"batch_dims": 1}, note="batch"
        ),
        Call("SliceGrad", [R(2, 3), I(4, 3), I(1), I(3), I(0)]),
        Call("SliceGrad", [R(2, 3), I(4, 3), I(0), I(4), I(0), I(2)], note="steps"),
        Call("SliceGrad", [R(2, 2), I(4, 3), I(1, 0), I(3, 2)], note="no-axes"),
        Call("SliceGrad", [R(2, 3), I(4, 3), I(-2), I(2**60), I(0)], note="from-end"),
        Call("SliceGrad", [R(4, 3), I(4, 3), I(-1), I(-(2**60)), I(0), I(-1)], note="backwards"),
        Call("ShrunkenGather", [R(4, 3), I(1, 3)], attributes={"axis": 0}),
    ]
    calls += [_of_a_tensor(call, SHAPES[call.op]) for call in calls if call.op in SHAPES]
    for opset in (12, 17):
        calls += [
            Call(
                "ConcatTraining", [R(2, 3), R(2, 1)], 2, {"axis": 1}, opset=opset, note=str(opset)
            ),
            Call("SplitTraining", [R(2, 5), I(2, 3)], 2, {"axis": 1}, opset=opset, note=str(opset)),
        ]
    calls.append(Call("ConcatTraining", [R(2, 3), R(1, 3)], 2, {"axis": -2}, note="negative"))
    return calls


SHAPES = {"GatherGrad": 0, "GatherElementsGrad": 1, "GatherNDGrad": 0, "SliceGrad": 1}
"""Which input is the shape of what was read from."""


def _of_a_tensor(call: Call, at: int) -> Call:
    """The call as it is written in models: the shape is that of a tensor."""
    inputs = list(call.inputs)
    read = np.zeros(inputs[at], np.float32)
    inputs[at] = "shape"
    shape = helper.make_node("Shape", ["read"], ["shape"])
    note = f"{call.note}-of-a-tensor".removeprefix("-")
    return replace(call, inputs=inputs, before=(shape,), more={"read": read}, note=note)
