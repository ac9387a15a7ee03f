"""Activations and the softmax family."""

from __future__ import annotations

import numpy as np

from tests.training_ops.calls import Call, drawing

R, P = drawing(1)


def calls() -> list[Call]:
    plain = ["ReluGrad", "SigmoidGrad", "TanhGrad", "GeluGrad", "FastGeluGrad", "QuickGeluGrad"]
    calls = [Call(op, [R(3, 4), R(3, 4)]) for op in (*plain, "LeakyReluGrad")]
    calls += [
        Call(op, [R(3, 4), R(3, 4), R(4)]) for op in ("BiasGeluGrad_dX", "BiasFastGeluGrad_dX")
    ]
    calls += [
        Call("LeakyReluGrad", [R(3, 4), R(3, 4)], attributes={"alpha": 0.3}, note="alpha"),
        Call("QuickGeluGrad", [R(3, 4), R(3, 4)], attributes={"alpha": -1.0}, note="alpha"),
    ]
    for op, name in (("SoftmaxGrad", "softmax"), ("LogSoftmaxGrad", "log")):
        y = P(3, 4, 2) if name == "log" else np.exp(P(3, 4, 2))
        for axis in (0, 1, 2):
            calls.append(
                Call(op, [R(3, 4, 2), y], attributes={"axis": axis}, opset=11, note=f"axis{axis}")
            )
        for axis in (0, 1, -1):
            calls.append(
                Call(f"{op}_13", [R(3, 4, 2), y], attributes={"axis": axis}, note=f"axis{axis}")
            )
    return calls
