"""LSTM and GRU."""

from __future__ import annotations

from onnx import helper

from blockdsl.graph.schema import MICROSOFT
from tests.training_ops.calls import Call, drawing

R, _ = drawing(7)


def calls() -> list[Call]:
    calls = []
    steps, batch, inputs, hidden = 5, 2, 3, 4
    x, size = R(steps, batch, inputs), {"hidden_size": hidden}
    h0, c0 = R(1, batch, hidden), R(1, batch, hidden)
    w, r, b = R(1, 4 * hidden, inputs), R(1, 4 * hidden, hidden), R(1, 8 * hidden)
    calls.append(Call("LSTMTraining", [x, w, r, b, None, h0, c0], 5, size))
    calls.append(Call("LSTMTraining", [x, w, r, None, None, h0, c0], 5, size, note="no-bias"))
    forward = helper.make_node(
        "LSTMTraining",
        ["i0", "i1", "i2", "b", "", "i4", "i5"],
        ["y", "", "", "cells", "gates"],
        domain=MICROSOFT,
        **size,
    )
    for note, dy, dh, dc in (("all", 1, 1, 1), ("steps", 1, 0, 0), ("last", 0, 1, 1)):
        seeds = [R(steps, 1, batch, hidden) if dy else None]
        seeds += [R(1, batch, hidden) if flag else None for flag in (dh, dc)]
        calls.append(
            Call(
                "LSTMGrad",
                [x, w, r, None, h0, c0, "y", "cells", "gates", *seeds],
                6,
                size,
                before=(forward,),
                more={"b": b},
                note=note,
            )
        )
    w, r, b = R(1, 3 * hidden, inputs), R(1, 3 * hidden, hidden), R(1, 6 * hidden)
    for linear in (0, 1):
        settings = {**size, "linear_before_reset": linear}
        calls.append(
            Call("GRUTraining", [x, w, r, b, None, h0], 3, settings, note=f"linear{linear}")
        )
        forward = helper.make_node(
            "GRUTraining",
            ["i0", "i1", "i2", "i3", "", "i5"],
            ["y", "", "zrh"],
            domain=MICROSOFT,
            **settings,
        )
        for note, dy, dh in (("all", 1, 1), ("steps", 1, 0), ("last", 0, 1)):
            seeds = [
                R(steps, 1, batch, hidden) if dy else None,
                R(1, batch, hidden) if dh else None,
            ]
            calls.append(
                Call(
                    "GRUGrad",
                    [x, w, r, b, None, h0, "y", "zrh", *seeds],
                    5,
                    settings,
                    before=(forward,),
                    note=f"{note}-linear{linear}",
                )
            )
    return calls
