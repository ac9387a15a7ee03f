"""Cross entropy."""

from __future__ import annotations

import numpy as np

from tests.training_ops.calls import Call, F, I, drawing

R, P = drawing(5)


def calls() -> list[Call]:
    calls = []
    one, labels = F(0.7), I(0, 3, 1)
    for reduction in ("mean", "sum", "none"):
        dy = R(3) if reduction == "none" else one
        attributes = {"reduction": reduction}
        calls += [
            Call(
                "SoftmaxCrossEntropyLossGrad", [dy, P(3, 4), labels], 1, attributes, note=reduction
            ),
            Call(
                "SoftmaxCrossEntropyLossGrad",
                [dy, P(3, 4), labels, R(4, low=0.1)],
                1,
                attributes,
                note=f"weighted-{reduction}",
            ),
            Call(
                "SoftmaxCrossEntropyLossGrad",
                [dy, P(3, 4), labels],
                1,
                {**attributes, "ignore_index": 3},
                note=f"ignoring-{reduction}",
            ),
            Call(
                "SoftmaxCrossEntropyLossInternalGrad",
                [dy, P(3, 4), labels, None, np.array(1)],
                1,
                attributes,
                note=reduction,
            ),
            Call(
                "SoftmaxCrossEntropyLossInternal",
                [R(3, 4), labels, R(4, low=0.1)],
                2,
                attributes,
                note=reduction,
            ),
            Call(
                "NegativeLogLikelihoodLossInternal2",
                [P(3, 4), labels, R(4, low=0.1)],
                1,
                attributes,
                note=reduction,
            ),
            Call(
                "NegativeLogLikelihoodLossInternal",
                [P(3, 4), labels],
                1,
                attributes,
                opset=12,
                note=reduction,
            ),
        ]
    calls += [
        Call("SoftmaxCrossEntropyLossGrad", [one, P(2, 4, 3), I([0, 1, 3], [2, 2, 0])], note="3d"),
        Call("SoftmaxCrossEntropyLossGrad", [one, P(3, 4), I(0, -1, 2)], note="minus-one"),
        Call(
            "SoftmaxCrossEntropyLossGrad",
            [one, P(3, 4), labels.astype(np.int32)],
            note="int32",
        ),
        Call(
            "SoftmaxCrossEntropyLossInternalGrad",
            [one, P(3, 4), labels, None, None, R(3, 4)],
            note="bias",
        ),
    ]
    return calls
