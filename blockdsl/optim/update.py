"""The update of a parameter, as the steps of an optimizer pass it on.

An update is a tensor and two scalars: steps multiply scalars, which all parameters share, and each
tensor is read once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

import numpy as np

from blockdsl.graph.value import Value, known_to_be
from blockdsl.optim.arithmetic import power

Scalar = float | Value
"""A Python number or a scalar tensor."""


@dataclass(frozen=True)
class Context:
    """The inputs of a step beside the update: parameter name, learning rate and step number.

    Attributes:
        name: The name of the parameter.
        learning_rate: The learning rate, a scalar of the type that the optimizer computes in.
        step: The number of this step, from 1 on: an int64 scalar.
        power_dtype: The type that powers of decay factors are rounded to: float64, or float32 as
            in the kernels of onnxruntime-training.
    """

    name: str
    learning_rate: Value
    step: Value
    power_dtype: np.dtype = field(default=np.dtype(np.float64), repr=False)
    _shared: dict[Hashable, Value] = field(default_factory=dict, repr=False)

    def for_parameter(self, name: str) -> Context:
        """Return the context of another parameter, which shares all scalars with this one."""
        return replace(self, name=name)

    def shared(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """Return a scalar that all parameters share, computed at the first request.

        Args:
            key: The identity of the scalar.
            compute: Builds it.
        """
        if key not in self._shared:
            self._shared[key] = compute()
        return self._shared[key]

    def bias_correction(self, decay: float) -> Value:
        """Return the bias correction of a moving average: 1 - decay ** step."""
        dtype = self.learning_rate.dtype

        def correction() -> Value:
            return (1 - power(decay, self.step).cast(self.power_dtype)).cast(dtype)

        return self.shared(("bias", decay), correction)

    def multiply(self, a: Scalar, b: Scalar) -> Scalar:
        """Return the product of two scalars: a b."""
        if not isinstance(a, Value):
            if not isinstance(b, Value):
                return a * b
            a, b = b, a
        if known_to_be(b, 0):
            return 0.0
        if known_to_be(b, 1):
            return a
        tensor: Value = a  # narrowed here, because a lambda loses the narrowing
        return self.shared(("product", a, b), lambda: tensor * b)

    def one_minus(self, a: Scalar) -> Scalar:
        """Return 1 - a."""
        return self.shared(("one minus", a), lambda: 1 - a) if isinstance(a, Value) else 1 - a

    def combine_decays(self, a: Scalar, b: Scalar) -> Scalar:
        """Combine two successive decay factors: 1 - (1 - a)(1 - b)."""
        if known_to_be(a, 0):
            return b
        return self.one_minus(self.multiply(self.one_minus(a), self.one_minus(b)))


@dataclass(frozen=True)
class Update:
    """The update of a parameter: w' = (1 - decay) w - scale direction.

    Attributes:
        direction: A tensor of the parameter's shape.
        scale: The factor of the direction.
        decay: The share of the parameter that decays.
    """

    direction: Value
    scale: Scalar = 1.0
    decay: Scalar = 0.0

    def scaled(self, factor: Scalar, context: Context) -> Update:
        """Return the update multiplied by a scalar."""
        return replace(
            self,
            scale=context.multiply(self.scale, factor),
            decay=context.multiply(self.decay, factor),
        )

    def as_tensor(self, parameter: Value) -> Value:
        """Return the update as one tensor, w - w', for steps that average updates."""
        change = _times(self.scale, self.direction)
        if known_to_be(self.decay, 0):
            return change
        return change + _times(self.decay, parameter)

    def apply(self, parameter: Value, context: Context) -> Value:
        """Return the updated parameter."""
        decayed = _times(context.one_minus(self.decay), parameter)
        return decayed - _times(self.scale, self.direction)


def _times(scale: Scalar, tensor: Value) -> Value:
    return tensor if known_to_be(scale, 1) else scale * tensor
