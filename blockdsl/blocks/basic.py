"""Constants, inputs and the blocks that hold others together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from blockdsl.blocks.block import Block
from blockdsl.blocks.operator import Unary, value_of
from blockdsl.blocks.parameters import dtype_of
from blockdsl.graph.context import current
from blockdsl.graph.inputs import input_like
from blockdsl.graph.op import op
from blockdsl.graph.value import Value


@dataclass(eq=False)
class Constant(Block):
    """A number, or an array, as a tensor.

    Numbers need no block where they meet tensors: `0.5 * x` and `Mul()(0.5, x)` take the type of
    `x`.

    Args:
        value_float: A number, which becomes a scalar, or an array.
        dtype: Its type. By default an array keeps its own, and a number has the floating-point
            type of the model: that of its first output, else its first input, that is of one.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     x = blockdsl.input("x", "float16", (2,))
        ...     c = Constant(0.5)()
        ...     print(c.type, (c * x).type)
        float16[] float16[2]
    """

    value_float: Any
    dtype: Any = None

    def build(self) -> Value:
        """Add the constant."""
        value = self.value_float
        if self.dtype is None and isinstance(value, np.ndarray | np.generic):
            return current().add_constant(np.asarray(value))
        return current().add_constant(np.asarray(value, dtype_of(self.dtype)))


class Identity(Unary):
    """`x`, under another name."""

    operator = op.Identity


class SequenceConstruct(Block):
    """A sequence of tensors."""

    def build(self, *sequence_input_names: str) -> Value:
        """Make the sequence.

        Args:
            *sequence_input_names: Its tensors, of one type.

        Returns:
            The sequence.
        """
        y: Value = op.SequenceConstruct(*sequence_input_names)
        return y


class PassThrough(Block):
    """The tensors it is given, as a tuple; nothing is added."""

    def build(self, *input_names: str) -> tuple[str, ...]:
        """Return the tensors."""
        return input_names


@dataclass(eq=False)
class InputLike(Block):
    """An input of the model, of the type and shape of another tensor.

    Args:
        like: The tensor to take the type and shape of.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     x = blockdsl.input("x", shape=("batch", 3))
        ...     print(InputLike(x)("target").type)
        float32[batch, 3]
    """

    like: str

    def build(self, input_name: str | None = None) -> Value:
        """Add the input, or take the one of that name if it fits.

        Args:
            input_name: Its name, `input` if left out (`input_1` if that is taken, and so on).

        Returns:
            The input.

        Raises:
            UnknownNameError: There is no tensor `like`.
            GraphError: There is a tensor of that name, of another type or shape.
        """
        if input_name is None:
            names = current().names
            with names.root():
                input_name = names.unique("input")
        return input_like(self.like, input_name)


@dataclass(eq=False)
class Cast(Block):
    """The elements of a tensor in another type.

    Args:
        to: An `onnx.TensorProto.DataType` or a NumPy type.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(Cast("int64")(blockdsl.input("x", shape=(2,))).type)
        int64[2]
    """

    to: Any

    def build(self, cast_input_name: str) -> Value:
        """Cast a tensor."""
        return value_of(cast_input_name).cast(self.to)


@dataclass(eq=False)
class LabelEncoder(Block):
    """Keys replaced by values, element by element: words by numbers, numbers by words.

    Exactly one of the lists of keys and one of the lists of values is given.

    Args:
        default_float: What a key that is not listed becomes, where the values are floats,
        default_int64: where they are integers,
        default_string: and where they are strings.
        keys_floats: The keys, if they are floats.
        keys_int64s: The keys, if they are integers.
        keys_strings: The keys, if they are strings.
        values_floats: The values, if they are floats.
        values_int64s: The values, if they are integers.
        values_strings: The values, if they are strings.

    Example:
        >>> import blockdsl
        >>> encode = LabelEncoder(keys_strings=["cat", "dog"], values_int64s=[0, 1])
        >>> with blockdsl.empty_base():
        ...     print(encode(blockdsl.input("animal", str, ("batch",))).type)
        int64[batch]
    """

    default_float: float = 0.0
    default_int64: int = -1
    default_string: str = "_Unused"
    keys_floats: Sequence[float] | None = None
    keys_int64s: Sequence[int] | None = None
    keys_strings: Sequence[str] | None = None
    values_floats: Sequence[float] | None = None
    values_int64s: Sequence[int] | None = None
    values_strings: Sequence[str] | None = None

    def build(self, label_encoder_input_name: str) -> Value:
        """Encode a tensor."""
        settings = {f.name: getattr(self, f.name) for f in fields(self)}
        y: Value = op.ml.LabelEncoder(label_encoder_input_name, **settings)
        return y


class Sequential(Block):
    """Blocks one after the other: each takes what the one before it returned.

    Args:
        *blocks: The blocks.

    Example:
        >>> import blockdsl
        >>> from blockdsl.blocks import Linear, Relu
        >>> net = Sequential(Linear(3, 8), Relu(), Linear(8, 2))
        >>> with blockdsl.empty_base() as handle:
        ...     y = net(blockdsl.input("x", shape=("batch", 3)))
        >>> print(y, y.type)
        Sequential/blocks.2/Gemm float32[batch, 2]
        >>> [t.name for t in handle.model.graph.initializer if t.name.endswith("weight")]
        ['Sequential/blocks.0.weight', 'Sequential/blocks.2.weight']
    """

    def __init__(self, *blocks: Block) -> None:
        self.blocks = blocks

    def build(self, x: Any) -> Any:
        """Apply the blocks.

        Args:
            x: What the first block takes.

        Returns:
            What the last one returns.
        """
        for block in self.blocks:
            x = block(x)
        return x

    def __repr__(self) -> str:
        return f"Sequential({', '.join(map(repr, self.blocks))})"
