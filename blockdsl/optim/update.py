"""What the steps of an optimizer hand on: a change of a parameter, and what all steps know.

A change is kept as a tensor and two numbers, so that steps multiply numbers, which are shared by
all parameters, and the tensors are touched once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

from blockdsl.gradient.updates import power
from blockdsl.graph.value import Value, known_to_be

Scalar = float | Value
"""A number that is known, or one that is computed."""


@dataclass(frozen=True)
class Context:
    """What a step knows beside the change: the parameter's name, the learning rate, the step.

    Attributes:
        name: The name of the parameter.
        learning_rate: The learning rate, a scalar of the type that the optimizer computes in.
        step: The number of this step, from 1 on: an int64 scalar.
    """

    name: str
    learning_rate: Value
    step: Value
    _made: dict[Hashable, Value] = field(default_factory=dict, repr=False)

    def of(self, name: str) -> Context:
        """The same for another parameter; what has been made once is shared."""
        return replace(self, name=name)

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """A scalar that all parameters share: made when it is asked for first.

        Args:
            key: What tells it from others.
            make: Makes it.
        """
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def bias_correction(self, decay: float) -> Value:
        """The weight of what a moving average that began at zero has seen: 1 - decay ** step."""
        dtype = self.learning_rate.dtype
        return self.once(("bias", decay), lambda: (1 - power(decay, self.step)).cast(dtype))

    def product(self, a: Scalar, b: Scalar) -> Scalar:
        """The product of two scalars: a b."""
        if not isinstance(a, Value):
            if not isinstance(b, Value):
                return a * b
            a, b = b, a
        if known_to_be(b, 0):
            return 0.0
        if known_to_be(b, 1):
            return a
        made: Value = a  # what the lambda takes is a Value, which a checker cannot see of `a`
        return self.once(("product", a, b), lambda: made * b)

    def complement(self, a: Scalar) -> Scalar:
        """What is missing to one: 1 - a."""
        return self.once(("complement", a), lambda: 1 - a) if isinstance(a, Value) else 1 - a

    def union(self, a: Scalar, b: Scalar) -> Scalar:
        """What two losses, one after the other, lose together: 1 - (1 - a) (1 - b)."""
        if known_to_be(a, 0):
            return b
        return self.complement(self.product(self.complement(a), self.complement(b)))


@dataclass(frozen=True)
class Update:
    """A change of a parameter: w' = (1 - decay) w - scale direction.

    Attributes:
        direction: A tensor of the parameter's shape.
        scale: How far to go against it.
        decay: How much of the parameter is lost.
    """

    direction: Value
    scale: Scalar = 1.0
    decay: Scalar = 0.0

    def scaled(self, factor: Scalar, context: Context) -> Update:
        """The change times a number."""
        scale, decay = context.product(self.scale, factor), context.product(self.decay, factor)
        return replace(self, scale=scale, decay=decay)

    def as_tensor(self, parameter: Value) -> Value:
        """The change as one tensor, which a step that remembers it needs: w - w'."""
        change = _times(self.scale, self.direction)
        if known_to_be(self.decay, 0):
            return change
        return change + _times(self.decay, parameter)

    def applied(self, parameter: Value, context: Context) -> Value:
        """The changed parameter."""
        kept = _times(context.complement(self.decay), parameter)
        return kept - _times(self.scale, self.direction)


def _times(scale: Scalar, tensor: Value) -> Value:
    return tensor if known_to_be(scale, 1) else scale * tensor
