"""The arithmetic of optimizers, tensor by tensor.

Tensors are expensive and numbers are cheap: whatever depends on the learning rate and the step
alone is worked out once, as scalars, and a tensor meets as few operators as there can be.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from blockdsl.gradient.plain import wide
from blockdsl.graph.op import op
from blockdsl.graph.value import Operand, Value

NORM_EPSILON = 1e-6
"""What is added to a norm before it divides."""


def moment(mean: Value, x: Value, decay: float) -> Value:
    """The moving average of a tensor: m' = decay m + (1 - decay) x."""
    return decay * mean + (1 - decay) * x


def squared_moment(mean: Value, x: Value, decay: float) -> Value:
    """The moving average of its square: v' = decay v + (1 - decay) x x."""
    return decay * mean + (1 - decay) * x * x


def power(base: float, step: Value) -> Value:
    """What is left of the beginning of a moving average: base ** step, in float64."""
    return op.Pow(np.float64(base), step.cast(np.float64))


def reduce_all_l2(tensors: Sequence[Value]) -> Value:
    """The norm of all tensors together, in float32 at least: n = sqrt(sum x x)."""
    squares = [op.ReduceSumSquare(wide(x), keepdims=0) for x in tensors]
    widest = TensorProto.DOUBLE if any(s.elem_type == TensorProto.DOUBLE for s in squares) else None
    total: Value = op.Sum(*(s.cast(widest or s.elem_type) for s in squares))
    return total.sqrt()


def clip_factor(gradients: Sequence[Value], max_norm: float) -> Value:
    """What brings the norm of all gradients below a limit: f = min(max_norm / (n + 1e-6), 1)."""
    factor: Value = op.Min(max_norm / (reduce_all_l2(gradients) + NORM_EPSILON), 1.0)
    return factor


def sgd(rate: Operand, parameter: Value, gradient: Value) -> Value:
    """Gradient descent: w' = w - rate g."""
    changed: Value = parameter - rate * gradient
    return changed


class AdamW:
    """AdamW as the kernel has it: w' = keep w - rate m' / (sqrt(v') + damping).

    Args:
        learning_rate: A float32 scalar.
        step: The number of this step, from 1 on: an int64 scalar.
        alpha: How much of the mean of the gradients is kept from step to step.
        beta: How much of the mean of their squares is.
        epsilon: What keeps the divisor from zero.
        weight_decay: How much of a weight is lost per step, times the learning rate.
        correct_bias: Whether the means are corrected for having begun at zero.
        adam_mode: 0 for PyTorch's formula (the decay before the change, epsilon after the bias
            correction), 1 for that of Hugging Face (after it and before it).
    """

    def __init__(
        self,
        learning_rate: Value,
        step: Value,
        *,
        alpha: float = 0.9,
        beta: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
        correct_bias: int = 1,
        adam_mode: int = 0,
    ) -> None:
        # What the kernel computes with: 1 - alpha is not what float32 makes of 1 - 0.9.
        self._alpha, self._beta = float(np.float32(alpha)), float(np.float32(beta))
        self._rate = learning_rate
        self._damping: Operand = epsilon
        self._keep: Operand = None
        if correct_bias:
            # Powers are taken in float64 and rounded right away.
            first = 1 - power(self._alpha, step).cast(np.float32)
            second = 1 - power(self._beta, step).cast(np.float32)
            root = second.sqrt()
            self._rate = learning_rate * (root / first)
            self._damping = epsilon if adam_mode else root * epsilon
        if weight_decay:
            self._keep = 1 - learning_rate * weight_decay
            self._rate = self._rate * self._keep if adam_mode else self._rate

    def __call__(
        self, parameter: Value, gradient: Value, mean: Value, square: Value
    ) -> tuple[Value, Value, Value]:
        """The new parameter and the new means of its gradient and of that gradient's square."""
        mean = moment(mean, gradient, self._alpha)
        square = squared_moment(square, gradient, self._beta)
        kept = parameter if self._keep is None else self._keep * parameter
        return kept - self._rate * mean / (square.sqrt() + self._damping), mean, square
