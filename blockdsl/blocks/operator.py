"""Blocks that are one operator of ONNX: a line each."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from blockdsl.blocks.block import Block
from blockdsl.graph.context import current
from blockdsl.graph.op import op
from blockdsl.graph.value import Operand, Value


@dataclass(eq=False)
class OperatorBlock(Block):
    """A block that is one operator; the fields of the class are the operator's attributes.

    Example:
        >>> import blockdsl
        >>> @dataclass(eq=False)
        ... class Elu(Unary):
        ...     operator = blockdsl.op.Elu
        ...     alpha: float = 1.0
        >>> Elu(alpha=0.5)
        Elu(alpha=0.5)
        >>> with blockdsl.empty_base() as handle:
        ...     y = Elu(alpha=0.5)(blockdsl.input("x", shape=("batch", 3)))
        >>> print(y, y.type)
        Elu/Elu float32[batch, 3]
    """

    operator: ClassVar[Any]
    """The operator, as `blockdsl.op` has it."""

    def emit(self, *inputs: Operand) -> Value:
        """Append the operator with these inputs and the block's fields as attributes."""
        attributes = {field.name: getattr(self, field.name) for field in fields(self)}
        made: Value = self.operator(*inputs, **attributes)
        return made


class Unary(OperatorBlock):
    """An operator of one input."""

    def build(self, input_name: Operand) -> Value:
        """Apply the operator.

        Args:
            input_name: A tensor.

        Returns:
            The result.
        """
        return self.emit(input_name)


class Binary(OperatorBlock):
    """An operator of two inputs, which broadcast to one shape."""

    def build(self, input_name1: Operand, input_name2: Operand) -> Value:
        """Apply the operator.

        Args:
            input_name1: The left operand: a tensor, a number or an array.
            input_name2: The right one.

        Returns:
            The result.
        """
        return self.emit(input_name1, input_name2)


class Variadic(OperatorBlock):
    """An operator of any number of inputs."""

    def build(self, *input_names: Operand) -> Value:
        """Apply the operator.

        Args:
            *input_names: Tensors, numbers or arrays.

        Returns:
            The result.
        """
        return self.emit(*input_names)


class _UnaryOp(Block):
    """An operator of one input, by its name: a base class of onnxblock that custom blocks extend.

    Args:
        op_name: The operator.
        **attributes: Its attributes.
    """

    def __init__(self, op_name: str, **attributes: Any) -> None:
        super().__init__()
        self._op_name = op_name
        self._attributes = attributes

    def build(self, input_name: Operand) -> Value:
        """Apply the operator."""
        applied: Value = getattr(op, self._op_name)(input_name, **self._attributes)
        return applied


class _BinaryOp(Block):
    """An operator of two inputs, by its name: a base class of onnxblock that custom blocks extend.

    Args:
        op_name: The operator.
    """

    def __init__(self, op_name: str) -> None:
        super().__init__()
        self._op_name = op_name

    def build(self, input_name1: Operand, input_name2: Operand) -> Value:
        """Apply the operator."""
        applied: Value = getattr(op, self._op_name)(input_name1, input_name2)
        return applied


def value_of(given: str) -> Value:
    """A tensor as a `Value`, whether it was given as one or by its name."""
    return given if isinstance(given, Value) else current().value(given)
