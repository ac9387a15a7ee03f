"""Differences between the newest form of an operator and its older forms.

Rules, losses and blocks are written in the newest form. Where an older opset lacks an attribute or
requires an input, this table says what its form implies, in both directions: for nodes that are
read (`blockdsl.gradient`) and for nodes that are emitted (`blockdsl.graph.op`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto

_EMPTY = np.zeros(0, np.float32)

IMPLIED_ATTRIBUTES: dict[tuple[str, str], Any] = {
    # (operator, attribute): its value in forms without the attribute
    ("AveragePool", "ceil_mode"): 0,
    ("BatchNormalization", "training_mode"): lambda node: int(any(node.output[1:])),
    ("MaxPool", "ceil_mode"): 0,
    ("Resize", "antialias"): 0,
    ("Resize", "coordinate_transformation_mode"): "asymmetric",
    ("Resize", "cubic_coeff_a"): -0.75,
    ("Resize", "exclude_outside"): 0,
    ("Resize", "keep_aspect_ratio_policy"): "stretch",
    ("Resize", "nearest_mode"): "floor",
    ("RoiAlign", "coordinate_transformation_mode"): "output_half_pixel",
}

REQUIRED_INPUTS: dict[tuple[str, str], Any] = {
    # (operator, input): its value where an older form requires what the newest form may omit
    ("Gemm", "C"): 0,
    ("Resize", "roi"): _EMPTY,
    ("Resize", "scales"): _EMPTY,
}


def is_implied(op_type: str, attribute: str, value: Any) -> bool:
    """Return whether forms without an attribute imply this value of it.

    Example:
        >>> is_implied("Resize", "nearest_mode", "floor"), is_implied("Relu", "alpha", 0)
        (True, False)
    """
    implied = IMPLIED_ATTRIBUTES.get((op_type, attribute))
    return implied is not None and not callable(implied) and bool(implied == value)


def implied_attribute(node: NodeProto, attribute: str, default: Any) -> Any:
    """Return the value that a node without an attribute implies.

    Args:
        node: The node, in a form that lacks the attribute.
        attribute: Its name in the newest form.
        default: The default of the newest form.
    """
    implied = IMPLIED_ATTRIBUTES.get((node.op_type, attribute), default)
    return implied(node) if callable(implied) else implied
