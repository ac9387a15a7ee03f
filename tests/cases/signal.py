"""Fourier transforms."""

import numpy as np

from blockdsl.testing import Case, R

CASES = [
    *[
        Case("DFT", [R(2, 5, parts), *length], opset=opset, **kind, **axis)
        for opset, axis in ((17, {"axis": 1}), (20, {}))
        for parts, length, kind in (
            (1, [], {}),
            (2, [], {}),
            (2, [np.array(8)], {}),
            (1, [np.array(3)], {}),
            (2, [], {"inverse": 1}),
            (1, [np.array(4)], {"inverse": 1}),
            (2, [np.array(7)], {"inverse": 1}),
            (1, [], {"onesided": 1}),
            (1, [np.array(8)], {"onesided": 1}),
            (1, [np.array(3)], {"onesided": 1}),
        )
    ],
    *[
        # Refused by onnxruntime 1.19.2.
        Case("DFT", [R(2, 5, 2), *length], opset=20, inverse=1, onesided=1, engines=False)
        for length in ([], [np.array(9)], [np.array(6)])
    ],
    Case("DFT", [R(4, 3, 2), None, np.array(0)], opset=20),
    Case("DFT", [R(2, 3, 4, 1), None, np.array(-3)], opset=20, onesided=1),
    Case("DFT", [R(2, 3, 4, 1), R(values=np.array(6)), np.array(2)], opset=20),
    Case("DFT", [R(2, 3, 4, 2), R(values=np.array(5)), np.array(1)], opset=20, inverse=1),
    # ONNX infers a whole spectrum where a node leaves out that it keeps half of it: say so.
    Case("STFT", [R(2, 12, 1), np.array(3), R(4)], onesided=1),
    Case("STFT", [R(2, 12, 1), np.array(4), R(5)], onesided=0),
    Case("STFT", [R(1, 10, 2), np.array(2), R(4)], onesided=0, engines=False),
    Case("STFT", [R(2, 10, 1), np.array(3), None, np.array(4)], onesided=1),
    Case("STFT", [R(2, 10, 1), R(values=np.array(2)), R(4), R(values=np.array(4))], onesided=1),
    Case("STFT", [R(1, 300, 1), np.array(50), R(64)], onesided=1),
]
