"""The two losses that ONNX has operators for."""

from blockdsl.testing import Case, R

LABELS = R(values=[0, 2, 3, 2])
IGNORED = R(values=[-1, 2, -1, 3])
PIXELS = R(values=[[[0, 3], [1, 1]], [[2, 0], [3, 3]]])
WEIGHTS = R(4, low=0.2)

CASES = [
    *[
        Case("SoftmaxCrossEntropyLoss", [R(4, 4), labels, *weights], **attributes)
        for labels, attributes in (
            (LABELS, {}),
            (LABELS, {"reduction": "sum"}),
            (LABELS, {"reduction": "none"}),
            (LABELS, {"ignore_index": 2}),
            (IGNORED, {"ignore_index": -1}),
            (IGNORED, {"ignore_index": -1, "reduction": "none"}),
        )
        for weights in ([], [WEIGHTS])
    ],
    *[
        Case("SoftmaxCrossEntropyLoss", [R(4, 4), LABELS, WEIGHTS], outputs=2, of=of, opset=opset)
        for of, opset in (([0, 1], [12, 13]), ([1], 13))
    ],
    Case("SoftmaxCrossEntropyLoss", [R(2, 4, 2, 2), PIXELS], opset=[12, 13]),
    Case("SoftmaxCrossEntropyLoss", [R(2, 4, 2, 2), PIXELS, WEIGHTS], ignore_index=3, outputs=2),
    Case("SoftmaxCrossEntropyLoss", [R(2, 4, 2, 2), PIXELS, WEIGHTS], reduction="none"),
    Case("SoftmaxCrossEntropyLoss", [R(4, 4), R(values=[0, 2, 3, 2], dtype="int32")]),
    Case(
        "SoftmaxCrossEntropyLoss",
        [R(4, 4, low=-200, high=200), LABELS],
        name="large",
        order=1,
        parity=1e-4,
    ),
    *[
        Case("NegativeLogLikelihoodLoss", [R(4, 4), labels, *weights], **attributes)
        for labels, attributes in (
            (LABELS, {}),
            (LABELS, {"reduction": "sum"}),
            (IGNORED, {"ignore_index": -1}),
            (IGNORED, {"ignore_index": -1, "reduction": "none"}),
        )
        for weights in ([], [WEIGHTS])
    ],
    Case("NegativeLogLikelihoodLoss", [R(2, 4, 2, 2), PIXELS], opset=[12, 13, 22]),
    Case("NegativeLogLikelihoodLoss", [R(2, 4, 2, 2), PIXELS, WEIGHTS], ignore_index=3),
]
