"""The rule of dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from blockdsl.gradient.registry import vjp
from blockdsl.graph.portable import where
from blockdsl.graph.value import Value


@vjp("Dropout")
def dropout(
    g: Any,
    y: Any,
    data: Value,
    ratio: Value | None,
    training_mode: Value | None,
) -> tuple[Value, None, None]:
    """y = mask x / (1 - ratio)        dx = mask g / (1 - ratio)        (in training; else y = x)

    The mask is the one that was drawn in the forward pass. Before opset 12 nothing is dropped.
    """
    trains = False if training_mode is None else training_mode.constant
    if trains is not None and not trains:
        return g[0], None, None
    scale = _scale(ratio, data)
    if trains is None and training_mode is not None:
        scale = where(training_mode, scale, 1)
    return g[0] * (y[1].cast(data.elem_type) * scale), None, None


def _scale(ratio: Value | None, like: Value) -> Value:
    """1 / (1 - ratio), and 0 where everything is dropped."""
    known = np.array(0.5) if ratio is None else ratio.constant
    if known is None and ratio is not None:
        kept = 1 - ratio.cast(like.elem_type)
        return where(kept > 0, 1 / kept, 0)
    rest = 1 - float(np.asarray(known))
    return like.graph.add_constant(np.array(1 / rest if rest > 0 else 0, like.dtype))
