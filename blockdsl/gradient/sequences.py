"""Cotangents of sequences.

While positions and lengths are known, the cotangent of a sequence is those of its elements, by
position. Otherwise it is itself a sequence of the same length, in which a 0 of shape (1, 1, ...)
stands for an element without a cotangent: it can be added to a tensor of any shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from blockdsl.graph import current, op
from blockdsl.graph.control import repeat
from blockdsl.graph.model import Graph
from blockdsl.graph.portable import where
from blockdsl.graph.shapes import concat_shape, shape_of, typed_as, zeros_like
from blockdsl.graph.tensor import FLOATS, TensorType, np_dtype
from blockdsl.graph.value import Value


class SequenceCotangent:
    """The cotangent of a sequence: a sum of cotangents of elements and of whole sequences.

    Args:
        elements: Cotangents of elements, by a position that is known.
        placed: Cotangents of elements, each behind its position, an int64 scalar.
        wholes: Sequences of cotangents, as long as the sequence.
    """

    def __init__(
        self,
        elements: Mapping[int, Value] | None = None,
        placed: Sequence[tuple[Value, Value]] = (),
        wholes: Sequence[Value] = (),
    ) -> None:
        self.elements = dict(elements or {})
        self.placed, self.wholes = list(placed), list(wholes)

    def __add__(self, other: SequenceCotangent) -> SequenceCotangent:
        """The sum of the contributions of two uses."""
        total = dict(self.elements)
        for position, value in other.elements.items():
            total[position] = total[position] + value if position in total else value
        placed, wholes = self.placed + other.placed, self.wholes + other.wholes
        return SequenceCotangent(total, placed, wholes)

    @property
    def is_known(self) -> bool:
        """Whether all positions are."""
        return not self.placed and not self.wholes

    def resolved(self, length: int) -> dict[int, Value]:
        """The elements with negative positions counted from the end."""
        total = SequenceCotangent()
        for position, value in self.elements.items():
            total = total + SequenceCotangent({position % length: value})
        return total.elements

    def dense(self, like: Value) -> Value:
        """A sequence of cotangents, one for each element of a sequence."""
        total = reduce(_added, self.wholes) if self.wholes else _zeros(like)
        known = ((op.Identity(np.array(p, np.int64)), d) for p, d in self.elements.items())
        for position, cotangent in (*known, *self.placed):
            place = from_the_front(position, op.SequenceLength(total))
            value = op.SequenceAt(total, place) + cotangent
            total = op.SequenceInsert(op.SequenceErase(total, place), value, place)
        return total


def read(value: Value) -> Any:
    """A cotangent that a node returned: a tensor, or a sequence for one of a sequence."""
    return value if value.graph.is_tensor(value) else SequenceCotangent(wholes=[value])


def written(cotangent: Any, like: Value) -> Value:
    """A cotangent for a node to return, zeros where there is none."""
    if not like.graph.is_tensor(like):
        return (SequenceCotangent() if cotangent is None else cotangent).dense(like)
    return zeros_like(like) if cotangent is None else cotangent


def element(sequence: Value, position: Any, like: Value) -> Value:
    """The cotangent of an element, in the shape of the element."""
    return typed_as(op.Expand(op.SequenceAt(sequence, position), shape_of(like)), like)


def from_the_front(position: Value, length: Value) -> Value:
    """A position that may be counted from the end as one that is not."""
    return where(position < 0, position + length, position)


def mapped(function: Callable[[Value], Value], like: Value, elem_type: int | None = None) -> Value:
    """A sequence made of a function of each position of another, of its element type by default."""

    def step(number: Value, carried: list[Value]) -> list[Value]:
        return [op.SequenceInsert(carried[0], function(number))]

    empty = op.SequenceEmpty(dtype=elem_type or _elem_type(like))
    return repeat(step, [empty], op.SequenceLength(like))[0]


def nothing(sequence: Value) -> Value:
    """What stands for the cotangent of an element that has none."""
    kind = sequence.graph.type_proto(sequence).sequence_type.elem_type
    found = TensorType.of(kind)
    rank = len(found.shape or ()) if found else 0
    return current().add_constant(np.zeros([1] * rank, np_dtype(_elem_type(sequence))))


def holds_floats(graph: Graph, name: str) -> bool:
    """Whether something is a sequence of floating-point tensors."""
    return graph.is_sequence(name) and _elem_type(graph.value(name)) in FLOATS


def _zeros(like: Value) -> Value:
    length = op.SequenceLength(like).unsqueeze(0)
    zero = nothing(like)
    shape = concat_shape(length, [1] * zero.rank)
    result: Value = op.SplitToSequence(op.Expand(zero, shape), keepdims=0)
    return result


def _added(a: Value, b: Value) -> Value:
    """The sum of two sequences, element by element."""
    return mapped(lambda i: op.SequenceAt(a, i) + op.SequenceAt(b, i), a)


def _elem_type(sequence: Value) -> int:
    proto = sequence.graph.type_proto(sequence)
    return proto.sequence_type.elem_type.tensor_type.elem_type
