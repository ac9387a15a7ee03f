"""Arithmetic and functions applied element by element. Operands broadcast as in NumPy.

Numbers may stand in the place of tensors, and are of the type of what they meet.

Example:
    >>> import blockdsl
    >>> from blockdsl.blocks import Mul, Sigmoid, Sub
    >>> with blockdsl.empty_base() as handle:
    ...     x = blockdsl.input("x", "float16", ("batch", 3))
    ...     y = Sub()(1, Mul()(2, Sigmoid()(x)))
    >>> print(y, y.type)
    Sub/Sub float16[batch, 3]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from blockdsl.blocks.block import Block
from blockdsl.blocks.operator import Binary, OperatorBlock, Unary, Variadic, value_of
from blockdsl.graph.context import current
from blockdsl.graph.op import op
from blockdsl.graph.value import Operand, Value


class Add(Binary):
    """`a + b`."""

    operator = op.Add


class Sub(Binary):
    """`a - b`."""

    operator = op.Sub


class Mul(Binary):
    """`a * b`."""

    operator = op.Mul


class Div(Binary):
    """`a / b`."""

    operator = op.Div


class Max(Variadic):
    """`max(a, b, ...)`."""

    operator = op.Max


class Min(Variadic):
    """`min(a, b, ...)`."""

    operator = op.Min


class Sum(Variadic):
    """`a + b + ...`."""

    operator = op.Sum


class Mean(Variadic):
    """`(a + b + ...) / n`, of n tensors; for the mean of one tensor see `ReduceMean`."""

    operator = op.Mean


class Neg(Unary):
    """`-x`."""

    operator = op.Neg


class Abs(Unary):
    """`|x|`."""

    operator = op.Abs


class Exp(Unary):
    """`e^x`."""

    operator = op.Exp


class Log(Unary):
    """The natural logarithm."""

    operator = op.Log


class Sqrt(Unary):
    """The square root."""

    operator = op.Sqrt


class Sigmoid(Unary):
    """`1 / (1 + e^-x)`."""

    operator = op.Sigmoid


class Tanh(Unary):
    """The hyperbolic tangent."""

    operator = op.Tanh


class Relu(Unary):
    """`max(x, 0)`."""

    operator = op.Relu


@dataclass(eq=False)
class Pow(Block):
    """`x^exponent`.

    Args:
        exponent: A number.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(Pow(3)(blockdsl.input("x", "float64", (2,))).type)
        float64[2]
    """

    exponent: float

    def build(self, pow_input_name: str) -> Value:
        """Raise a tensor to the power."""
        return value_of(pow_input_name) ** self.exponent


@dataclass(eq=False)
class Clip(Block):
    """`min(max(x, clip_min), clip_max)`.

    Args:
        clip_min: The least value, None for no bound.
        clip_max: The greatest value, None for no bound.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base(opset_version=9):
        ...     print(Clip(0, 6)(blockdsl.input("x", shape=(2,))).type)
        float32[2]
    """

    clip_min: float | None = None
    clip_max: float | None = None

    def build(self, clip_input_name: str) -> Value:
        """Clip a tensor."""
        return value_of(clip_input_name).clip(self.clip_min, self.clip_max)


@dataclass(eq=False)
class Gelu(Block):
    """`x Phi(x)`, with the distribution function Phi of the standard normal distribution.

    Before opset 20, which has the operator, it is written out.

    Args:
        approximate: "none" for `x (1 + erf(x / sqrt(2))) / 2`, which needs opset 9; "tanh" for
            `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base(opset_version=13) as handle:
        ...     y = Gelu()(blockdsl.input("x", shape=(2,)))
        >>> [node.op_type for node in handle.model.graph.node]
        ['Div', 'Erf', 'Mul', 'Add', 'Mul']
    """

    approximate: Literal["none", "tanh"] = "none"

    def build(self, input_name: str) -> Value:
        """Apply the function."""
        x = value_of(input_name)
        if current().opset() >= 20:
            y: Value = op.Gelu(x, approximate=self.approximate)
            return y
        if self.approximate == "tanh":
            gate = (math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))).tanh()
        else:
            gate = op.Erf(x / math.sqrt(2))
        return 0.5 * x * (1 + gate)


class Where(OperatorBlock):
    """`a` where the condition holds, else `b`; needs opset 9.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     x = blockdsl.input("x", shape=(2,))
        ...     print(Where()(x > 0, x, 0).type)
        float32[2]
    """

    operator = op.Where

    def build(self, condition: Operand, a: Operand, b: Operand) -> Value:
        """Choose element by element.

        Args:
            condition: A tensor of booleans.
            a: What is taken where it is true.
            b: What is taken where it is false.

        Returns:
            The result.
        """
        return self.emit(condition, a, b)
