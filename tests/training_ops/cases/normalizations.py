"""Normalisation."""

from __future__ import annotations

import numpy as np

from tests.training_ops.calls import Call, drawing
from tests.training_ops.expected import layer_norm_back

R, _ = drawing(6)


def calls() -> list[Call]:
    calls = []
    for axis, rest in ((-1, (5,)), (1, (4, 5))):
        x = R(3, 4, 5)
        axes = tuple(range(axis % 3, 3))
        mean = x.mean(axes, keepdims=True)
        root = 1 / np.sqrt(x.var(axes, keepdims=True) + 1e-5, dtype=np.float32)
        rms = 1 / np.sqrt((x * x).mean(axes, keepdims=True) + 1e-5, dtype=np.float32)
        scale, bias = R(*rest, low=0.3), R(*rest)
        dy, z = R(3, 4, 5), (x - mean) * root
        y = z * scale + bias
        attributes, note = {"axis": axis}, f"axis{axis}"
        calls += [
            Call(
                "LayerNormalizationGrad",
                [R(3, 4, 5), x, scale, mean, root],
                3,
                attributes,
                note=note,
            ),
            Call(
                "InvertibleLayerNormalizationGrad",
                [dy, y, scale, bias, root],
                3,
                attributes,
                note=note,
                expected=layer_norm_back(dy, z, root, scale, axis),
            ),
            Call(
                "SimplifiedLayerNormalizationGrad",
                [R(3, 4, 5), x, scale, rms],
                2,
                attributes,
                note=note,
            ),
        ]
    for rank in (2, 3, 4):
        shape = (4, 3, 5, 2)[:rank]
        x = R(*shape)
        axes = (0, *range(2, rank))
        root = 1 / np.sqrt(x.var(axes) + 1e-5, dtype=np.float32)
        calls += [
            Call(
                "BatchNormalizationGrad",
                [R(*shape), x, R(3), x.mean(axes), root],
                3,
                {"epsilon": 1e-5},
                note=f"{rank}d",
            ),
            Call(
                "BatchNormInternal",
                [x, R(3), R(3), R(3), R(3, low=0.5)],
                5,
                {"epsilon": 1e-3, "momentum": 0.8, "training_mode": 1},
                note=f"{rank}d",
            ),
        ]
    return calls
