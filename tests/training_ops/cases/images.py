"""Convolutions, pools and resampling."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from tests.training_ops.calls import Call, drawing
from tests.training_ops.expected import adjoint

R, _ = drawing(3)


def calls() -> list[Call]:
    calls = []
    for note, x, w, y, attributes in (
        ("plain", (2, 3, 6, 6), (4, 3, 3, 3), (2, 4, 4, 4), {}),
        ("padded", (2, 3, 6, 6), (4, 3, 3, 3), (2, 4, 6, 6), {"pads": [1, 1, 1, 1]}),
        ("strides", (2, 3, 7, 7), (4, 3, 3, 3), (2, 4, 3, 3), {"strides": [2, 2]}),
        ("dilations", (2, 3, 7, 7), (4, 3, 3, 3), (2, 4, 3, 3), {"dilations": [2, 2]}),
        ("groups", (2, 4, 6, 6), (6, 2, 3, 3), (2, 6, 4, 4), {"group": 2}),
        ("1d", (2, 3, 8), (4, 3, 3), (2, 4, 6), {}),
        ("3d", (1, 2, 4, 4, 4), (3, 2, 2, 2, 2), (1, 3, 3, 3, 3), {}),
    ):
        fed = {"kernel_shape": list(w[2:]), **attributes}
        calls.append(Call("ConvGrad", [R(*y), R(*x), R(*w)], 3, fed, note=note))
    fed, flags = {"kernel_shape": [3, 3]}, [False, True]
    calls.append(
        Call("ConvGrad", [R(2, 4, 4, 4), R(2, 3, 6, 6), R(4, 3, 3, 3)], flags, fed, note="dw")
    )
    for note, attributes in (
        ("plain", {}),
        ("strides", {"strides": [2]}),
        ("pads", {"strides": [2], "pads": [1, 1], "output_padding": [1]}),
        ("groups", {"group": 2}),
    ):
        x, w = R(2, 2, 4), R(2, 1 if "group" in attributes else 3, 3)
        length = {"plain": 6, "strides": 9, "pads": 8, "groups": 6}[note]
        dy = R(2, 2 if "group" in attributes else 3, length)
        attributes = {"kernel_shape": [3], **attributes}
        expected = [adjoint("ConvTranspose", [x, w], i, dy, attributes) for i in (0, 1)]
        expected.append(dy.sum((0, 2)))
        calls.append(
            Call("ConvTransposeGrad", [dy, x, w], 3, attributes, note=note, expected=expected)
        )
    # Where the kernels are wrong: they take auto_pad for no padding.
    for auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        x, w, dy = R(1, 2, 5), R(3, 2, 2), R(1, 3, 5)
        attributes = {"auto_pad": auto_pad, "kernel_shape": [2]}
        expected = [adjoint("Conv", [x, w], i, dy, attributes) for i in (0, 1)]
        calls.append(Call("ConvGrad", [dy, x, w], 2, attributes, note=auto_pad, expected=expected))
        expected = [adjoint("AveragePool", [x], 0, x, attributes)]
        calls.append(
            Call(
                "AveragePoolGrad",
                [x],
                1,
                attributes,
                "",
                declared=x.shape,
                note=auto_pad,
                expected=expected,
            )
        )
    for mode in ("nearest", "linear", "cubic"):
        x, scales, dy = R(1, 2, 3), np.array([1, 1, 2], np.float32), R(1, 2, 6)
        attributes = {"mode": mode, "extrapolation_value": 0.0}
        expected = [adjoint("Resize", [x, None, scales], 0, dy, attributes)]
        calls.append(
            Call("ResizeGrad", [dy, x, None, scales], 1, attributes, note=mode, expected=expected)
        )
    for note, x, attributes in (
        ("tiles", (2, 3, 6, 6), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("overlaps", (2, 3, 6, 6), {"kernel_shape": [3, 3], "strides": [2, 2]}),
        ("padded", (2, 3, 6, 6), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("1d", (2, 3, 8), {"kernel_shape": [2], "strides": [2]}),
    ):
        data = R(*x)
        y = _pooled_shape(x, attributes)
        for opset in (12, 17):
            pool = helper.make_node("MaxPool", ["x"], ["pooled", "indices"], **attributes)
            calls.append(
                Call(
                    "MaxPoolGrad",
                    [R(*y), "indices"],
                    1,
                    attributes,
                    "",
                    opset,
                    (pool,),
                    {"x": data},
                    declared=x,
                    note=f"{note}-{opset}",
                )
            )
        calls += [
            Call(
                "AveragePoolGrad",
                [R(*y)],
                1,
                {**attributes, "count_include_pad": include},
                "",
                declared=x,
                note=f"{note}-{include}",
            )
            for include in (0, 1)
        ]
    return calls


def _pooled_shape(x: tuple[int, ...], attributes: dict[str, Any]) -> list[int]:
    kernel, strides = attributes["kernel_shape"], attributes["strides"]
    pads = attributes.get("pads", [0] * 2 * len(kernel))
    lengths = [
        (d + pads[k] + pads[k + len(kernel)] - kernel[k]) // strides[k] + 1
        for k, d in enumerate(x[2:])
    ]
    return [*x[:2], *lengths]
