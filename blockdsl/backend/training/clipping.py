"""Clipping of gradients before the C optimizer takes its step.

The C class hands its parameters to an optimizer model in the order of a hash table, which from
about eight parameters on is another one in every process. Nothing depends on the order but the sum
in the norm of all gradients, by its rounding: with the clipping inside the model no run can be
repeated to the bit, nor resumed. So it is taken out of the model, and done here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from onnx import ModelProto

from blockdsl.backend.engine import Array
from blockdsl.graph.schema import MICROSOFT
from blockdsl.optim.arithmetic import NORM_EPSILON

_CLIP = "InplaceClipGradNorm"
_LARGEST_NORM = 1.0  # the operator's default


def take_out_clipping(model: ModelProto) -> float | None:
    """Take the clipping out of an optimizer model.

    Returns:
        The norm that it clips to, None if it does not clip.
    """
    nodes = model.graph.node
    for i, clip in enumerate(nodes):
        if clip.op_type == _CLIP and clip.domain == MICROSOFT:
            (gradients,), (clipped,) = clip.input, clip.output
            for node in nodes:
                node.input[:] = [gradients if name == clipped else name for name in node.input]
            found = {attribute.name: attribute.f for attribute in clip.attribute}
            del nodes[i]
            return float(found.get("max_norm", _LARGEST_NORM))
    return None


def clip(gradients: Iterable[Array], largest: float) -> None:
    """Scale gradients in place so that their common norm is at most so large."""
    gradients = list(gradients)
    norm = math.sqrt(sum(float(np.vdot(g, g)) for g in gradients))
    factor = np.float32(min(largest / (norm + NORM_EPSILON), 1.0))
    for gradient in gradients:
        np.multiply(gradient, factor, out=gradient)
