"""The rule of dropout."""

from __future__ import annotations

from typing import Any

from blockdsl.gradient.registry import vjp
from blockdsl.gradient.replay import kept_scale
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

    The mask is the one that was drawn in the forward pass. Before opset 12 the operator drops
    nothing: training models have its mathematics in its place.
    """
    trains = False if training_mode is None else training_mode.constant
    if trains is not None and not trains:
        return g[0], None, None
    scale = kept_scale(ratio, data)
    if trains is None and training_mode is not None:
        scale = where(training_mode, scale, 1)
    return g[0] * (y[1].cast(data.elem_type) * scale), None, None
