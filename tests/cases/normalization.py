"""Normalisations."""

import numpy as np

from blockdsl.gradient.rules.normalization import batch_normalization_in_training
from blockdsl.graph import op
from blockdsl.testing import Case, R


def statistics(x, scale):
    """LayerNormalization with all its outputs, which may be of different types."""
    outputs = op.LayerNormalization(x, scale, axis=1, outputs=3)
    return [op.Identity(output.cast(x.elem_type)) for output in outputs]


CHANNELS = [R(3), R(3), R(3), R(3, low=0.5)]
POSITIONS = [R(2, 3), R(2, 3), R(2, 3), R(2, 3, low=0.5)]
TRAINED = {"outputs": 3, "training_mode": 1, "momentum": 0.7}


def by_mathematics(x, scale, bias, mean, var):
    made = batch_normalization_in_training(x, scale, bias, mean, var, epsilon=0.1, momentum=0.7)
    return made[:3]


def by_numpy(x, scale, bias, mean, var):
    centre, spread = x.mean(axis=(0, 2)), x.var(axis=(0, 2))
    y = (x - centre[:, None]) / np.sqrt(spread + 0.1)[:, None] * scale[:, None] + bias[:, None]
    return y, 0.7 * mean + 0.3 * centre, 0.7 * var + 0.3 * spread


CASES = [
    *[
        Case("BatchNormalization", [R(*shape), *CHANNELS], opset=opsets)
        for shape, opsets in (
            ((4, 3), [9, 15]),
            ((2, 3, 4), 15),
            ((2, 3, 4, 2), [7, 9, 14, 15]),
            ((2, 3, 2, 2, 2), 14),
        )
    ],
    *[
        Case("BatchNormalization", [R(*shape), *CHANNELS], opset=[14, 15], **TRAINED)
        for shape in ((5, 3), (2, 3, 4), (2, 3, 4, 2), (2, 3, 2, 2, 2))
    ],
    Case("BatchNormalization", [R(2, 3, 4, 2), *CHANNELS], epsilon=0.5, of=[0], **TRAINED),
    Case(
        "BatchNormalization",
        [R(2, 3, 4), *CHANNELS],
        build=by_mathematics,
        expected=by_numpy,
        name="by its mathematics",
        opset=[9, 17],
    ),
    Case(
        "BatchNormalization",
        [R(2, 3, 4, 2), *CHANNELS],
        outputs=5,
        of=[0],
        wrt=[0, 1, 2],
        opset=[7, 9],
        engines=False,  # ONNX Runtime has the inference form only at these opsets
    ),
    *[
        Case("LayerNormalization", [R(2, 3, 4), R(*scale), R(*scale)], axis=axis)
        for axis, scale in ((-1, (4,)), (1, (3, 4)), (0, (2, 3, 4)), (-2, (3, 4)), (2, (4,)))
    ],
    Case("LayerNormalization", [R(2, 3, 4), R(4)]),
    Case("LayerNormalization", [R(2, 3, 4), R(4), R(4)], epsilon=0.1, outputs=3, of=[0]),
    Case(
        "LayerNormalization",
        [R(2, 3, 4), R(3, 4)],
        build=statistics,
        name="statistics",
        order=1,
        rtol=0.05,  # two of them are float32 whatever the input is
    ),
    Case("LayerNormalization", [R(5), R(5), R(5)], opset=[17, 23]),
    Case("InstanceNormalization", [R(2, 3, 5), R(3), R(3)], opset=[7, 17, 22]),
    Case("InstanceNormalization", [R(2, 3, 4, 2), R(3), R(3)], epsilon=0.1),
    Case("InstanceNormalization", [R(2, 3, 2, 2, 2), R(3), R(3)]),
    Case("GroupNormalization", [R(2, 4, 3), R(4), R(4)], num_groups=2, opset=21),
    Case("GroupNormalization", [R(2, 6, 3, 2), R(6), R(6)], num_groups=3, epsilon=0.1),
    Case("GroupNormalization", [R(2, 3, 2, 2, 2), R(3), R(3)], num_groups=1),
    Case("GroupNormalization", [R(2, 3, 3), R(3), R(3)], num_groups=3),
    *[
        Case("RMSNormalization", [R(2, 3, 4), R(*scale)], axis=axis)
        for axis, scale in ((-1, (4,)), (1, (3, 4)), (0, (2, 3, 4)), (-2, (3, 1)), (2, (1,)))
    ],
    Case("MeanVarianceNormalization", [R(2, 3, 4, 2)], opset=[9, 13], engines=False),
    Case("MeanVarianceNormalization", [R(2, 3, 4)], axes=[1, -1], engines=False),
    Case("LRN", [R(2, 5, 3, 2)], size=3, alpha=0.5, opset=[7, 13]),
    # ONNX Runtime has kernels for odd sizes and images only.
    Case("LRN", [R(2, 5, 3)], size=4, alpha=0.5, beta=1.5, bias=2.0, engines=False),
    Case("LRN", [R(1, 3, 2, 2, 2)], size=1, alpha=0.3, engines=False),
    Case("LpNormalization", [R(2, 3, 4)], opset=[7, 17, 22]),
    Case("LpNormalization", [R(2, 3, 4)], axis=1, p=2),
    Case("LpNormalization", [R(2, 3, 4, away=0.1)], axis=0, p=1, opset=[9, 17]),
    Case("LpNormalization", [R(2, 3, 4, away=0.1)], axis=0, p=1, opset=7, order=1),
    *[
        Case("BatchNormalization", [R(*shape), *CHANNELS], of=[0], order=1, **TRAINED)
        for shape in ((0, 3), (0, 3, 4))
    ],
    Case("LayerNormalization", [R(0, 3), R(3), R(3)]),
    Case("BatchNormalization", [R(4, 2, 3), *POSITIONS], opset=7, spatial=0),
    Case(
        "BatchNormalization",
        [R(4, 2, 3), *POSITIONS],
        opset=7,
        spatial=0,
        outputs=5,
        of=[0],
        wrt=[0, 1, 2],
        engines=False,  # as above
    ),
]
