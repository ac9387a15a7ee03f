"""Arithmetic that optimizers share.

Tensors are expensive and scalars are cheap: whatever depends on the learning rate and the step
alone is computed once, as a scalar, and each tensor meets as few operators as possible.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from blockdsl.functional.model_functions import FLOAT, model_function
from blockdsl.graph.op import op
from blockdsl.graph.value import Value
from blockdsl.optim.plain_form import to_compute_type

NORM_EPSILON = 1e-6
"""Numerical stability: added to a norm before it divides."""


def moment(mean: Value, x: Value, decay: float) -> Value:
    """Update the moving average of a tensor: m' = decay m + (1 - decay) x."""
    return decay * mean + (1 - decay) * x


def squared_moment(mean: Value, x: Value, decay: float) -> Value:
    """Update the moving average of the square of a tensor: v' = decay v + (1 - decay) x x."""
    return decay * mean + (1 - decay) * x * x


def power(base: float, step: Value) -> Value:
    """Return base ** step in float64."""
    return op.Pow(np.float64(base), step.cast(np.float64))


@model_function("ReduceAllL2", FLOAT)
def reduce_all_l2(*tensors: Value) -> Value:
    """Return the norm of all tensors together, in float32 at least: n = sqrt(sum x x)."""
    squares = [op.ReduceSumSquare(to_compute_type(x), keepdims=0) for x in tensors]
    widest = TensorProto.DOUBLE if any(s.elem_type == TensorProto.DOUBLE for s in squares) else None
    total: Value = op.Sum(*(s.cast(widest or s.elem_type) for s in squares))
    return total.sqrt()


def clip_factor(norm: Value, max_norm: float) -> Value:
    """Return the factor that limits a norm: f = min(max_norm / (norm + 1e-6), 1)."""
    factor: Value = op.Min(max_norm / (norm + NORM_EPSILON), 1.0)
    return factor
