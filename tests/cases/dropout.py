"""Dropout: the evaluator draws the same mask in every run, ONNX Runtime does not."""

import numpy as np

from blockdsl.testing import Case, R

YES, NO = np.array(True), np.array(False)

CASES = [
    Case("Dropout", [R(2, 3)], ratio=0.3, opset=[7, 10]),
    Case("Dropout", [R(2, 3)], outputs=2, opset=12),
    Case("Dropout", [R(2, 3)], outputs=2, opset=10, engines=False),  # a mask of zeros there
    Case("Dropout", [R(2, 3), 0.3], opset=[12, 13, 22]),
    Case("Dropout", [R(2, 3), 0.3, NO], outputs=2),
    Case("Dropout", [R(2, 3), 0.0, YES]),
    Case("Dropout", [R(2, 3), 0.0, R(values=True)], name="nothing dropped"),
    Case("Dropout", [R(2, 3), 0.7, R(values=False)], name="not training"),
    Case(
        "Dropout", [R(2, 3), R(values=0.7), R(values=False)], name="inputs, not training", wrt=[0]
    ),
    Case("Dropout", [R(4, 5), 0.3, YES], opset=[12, 13, 22], engines=False),
    Case("Dropout", [R(4, 5), None, YES], outputs=2, seed=3, engines=False),
    Case("Dropout", [R(4, 5), 1.0, YES], engines=False),
    Case("Dropout", [R(4, 5), R(values=0.4), R(values=True)], wrt=[0], engines=False),
    Case("Dropout", [R(4, 5), 0.4, R(values=True)], engines=False, name="training by an input"),
]
