"""Pools and their transposes."""

import numpy as np

from blockdsl.testing import Case, R

GEOMETRIES = [
    {"kernel_shape": [2, 2], "strides": [2, 2]},
    {"kernel_shape": [3, 2], "strides": [2, 1]},
    {"kernel_shape": [2, 3], "strides": [2, 3], "pads": [1, 1, 0, 2]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 1, 1, 0], "ceil_mode": 1},
    {"kernel_shape": [2, 2], "strides": [5, 5], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [2, 3], "strides": [2, 1], "auto_pad": "VALID"},
]
DILATED = [
    {"kernel_shape": [2, 2], "dilations": [2, 3]},
    {"kernel_shape": [2, 3], "dilations": [2, 1], "strides": [3, 2], "pads": [1, 0, 1, 1]},
    {"kernel_shape": [2, 2], "dilations": [2, 1], "strides": [2, 2], "ceil_mode": 1},
]

CASES = [
    *[Case("MaxPool", [R(2, 2, 6, 7)], **geometry) for geometry in GEOMETRIES + DILATED],
    # Before opset 16 nothing adds at indices, and ArgMax finds them: order 1.
    *[Case("MaxPool", [R(2, 2, 7, 6)], opset=11, order=1, **geometry) for geometry in GEOMETRIES],
    Case("MaxPool", [R(2, 3, 7)], kernel_shape=[3], strides=[2], opset=[9, 11], order=1),
    Case("MaxPool", [R(2, 3, 7)], kernel_shape=[3], strides=[2], opset=[16, 22]),
    Case("MaxPool", [R(2, 3, 6)], kernel_shape=[2], strides=[2], opset=[9, 11, 16]),
    Case("MaxPool", [R(2, 3, 7)], kernel_shape=[3], strides=[2], opset=7, order=1),
    Case("MaxPool", [R(2, 3, 6)], kernel_shape=[2], opset=[7, 8], order=1),
    Case("MaxPool", [R(2, 2, 4, 5, 4)], kernel_shape=[2, 3, 2], strides=[2, 1, 2]),
    Case("MaxPool", [R(2, 2, 4, 5, 4)], kernel_shape=[2, 2, 2], dilations=[1, 2, 1]),
    Case("MaxPool", [R(2, 2, 4, 5)], kernel_shape=[2, 2], outputs=2),
    Case("MaxPool", [R(2, 2, 4, 5)], kernel_shape=[2, 2], storage_order=1, outputs=2),
    Case("MaxPool", [R(2, 2, 4, 5)], kernel_shape=[2, 2], storage_order=1),
    Case("MaxPool", [R(2, 2, 3, 4, 5)], kernel_shape=[2, 2, 2], storage_order=1),
    *[
        Case("AveragePool", [R(2, 2, 6, 7)], count_include_pad=include, **geometry)
        for geometry in GEOMETRIES
        for include in (0, 1)
    ],
    *[
        Case("AveragePool", [R(2, 2, 6, 7)], count_include_pad=include, opset=19, **geometry)
        for geometry in DILATED
        for include in (0, 1)
    ],
    Case("AveragePool", [R(2, 2, 7)], kernel_shape=[3], pads=[1, 1], opset=[7, 9, 10, 11, 22]),
    Case("AveragePool", [R(2, 2, 6)], kernel_shape=[3], strides=[3], opset=[9, 10, 11]),
    Case("AveragePool", [R(2, 2, 6)], kernel_shape=[3], strides=[3], opset=7),
    Case("AveragePool", [R(2, 2, 4, 6, 4)], kernel_shape=[2, 3, 2], strides=[2, 3, 2]),
    Case("AveragePool", [R(2, 2, 3, 4, 3)], kernel_shape=[2, 2, 2], pads=[1, 0, 0, 0, 1, 1]),
    *[
        Case("LpPool", [R(2, 2, 6, 7, away=0.1)], opset=18, p=p, order=min(p, 2), **geometry)
        for geometry in (GEOMETRIES + DILATED)[1::2]
        for p in (1, 2, 3)
    ],
    Case("LpPool", [R(2, 2, 5)], kernel_shape=[2], opset=[7, 11]),
    Case("GlobalAveragePool", [R(2, 3, 4)], opset=[7, 22]),
    Case("GlobalAveragePool", [R(2, 3, 4, 5)]),
    Case("GlobalAveragePool", [R(2, 2, 2, 3, 2)]),
    Case("GlobalMaxPool", [R(2, 3, 4)], opset=7, order=1),
    Case("GlobalMaxPool", [R(2, 3, 4)], opset=[9, 11, 22], order=1),
    Case("GlobalMaxPool", [R(2, 3, 4, 5)], order=1),
    *[
        Case("GlobalLpPool", [R(2, 3, 4, 5, away=0.1)], p=p, opset=[7, 17], order=min(p, 2))
        for p in (1, 2, 3)
    ],
    Case(
        "MaxUnpool",
        [R(1, 2, 2, 2), R(values=[[[[0, 3], [9, 14]], [[17, 19], [28, 31]]]])],
        kernel_shape=[2, 2],
        strides=[2, 2],
        opset=[9, 11, 22],
    ),
    Case(
        "MaxUnpool",
        [R(1, 1, 2, 2), R(values=[[[[0, 3], [9, 14]]]]), np.array([1, 1, 5, 6])],
        kernel_shape=[2, 2],
        strides=[2, 2],
        engines=False,
    ),
]
