"""Rules of sequences and optionals.

The cotangent of a sequence is the cotangents of those of its elements that have one, by position.
So positions and lengths must be known when the graph is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import GraphProto

from blockdsl.errors import GradientError
from blockdsl.gradient.composites import composite
from blockdsl.gradient.functions import spliced
from blockdsl.gradient.registry import no_gradient, vjp
from blockdsl.graph import current, op
from blockdsl.graph.shapes import concat_shape, dims_of
from blockdsl.graph.tensor import TensorType
from blockdsl.graph.value import Value


class SequenceCotangent:
    """The cotangents of elements of a sequence, by position."""

    def __init__(self, elements: Mapping[int, Value]) -> None:
        self.elements = dict(elements)

    def __add__(self, other: SequenceCotangent) -> SequenceCotangent:
        """The sum of the contributions of two uses."""
        total = dict(self.elements)
        for position, value in other.elements.items():
            total[position] = total[position] + value if position in total else value
        return SequenceCotangent(total)

    def resolved(self, length: int) -> dict[int, Value]:
        """The elements with negative positions counted from the end."""
        total = SequenceCotangent({})
        for position, value in self.elements.items():
            total = total + SequenceCotangent({position % length: value})
        return total.elements


@vjp("SequenceConstruct")
def sequence_construct(g: Any, y: Value, *inputs: Value) -> list[Value | None]:
    """y = [x0, x1, ...]        dxi = gi"""
    found = g.resolved(len(inputs))
    return [found.get(i) for i in range(len(inputs))]


@vjp("SequenceAt")
def sequence_at(g: Value, y: Value, seq: Value, position: Value) -> tuple[Any, None]:
    """y = seq[i]        dseq = {i: g}"""
    return SequenceCotangent({_position(seq, position): g}), None


@vjp("SequenceInsert")
def sequence_insert(
    g: Any, y: Value, seq: Value, tensor: Value, position: Value | None
) -> tuple[Any, Value | None, None]:
    """y = seq with x put in at i        dx = gi, the others move down"""
    length = _length(seq)
    at = length if position is None else _position(seq, position)
    at = at + length if at < 0 else at
    found = g.resolved(length + 1)
    rest = {p - (p > at): value for p, value in found.items() if p != at}
    return SequenceCotangent(rest), found.get(at), None


@vjp("SequenceErase")
def sequence_erase(g: Any, y: Value, seq: Value, position: Value | None) -> tuple[Any, None]:
    """y = seq without element i        those behind it move up"""
    length = _length(seq)
    at = length - 1 if position is None else _position(seq, position) % length
    found = g.resolved(length - 1)
    return SequenceCotangent({p + (p >= at): value for p, value in found.items()}), None


@vjp("ConcatFromSequence")
def concat_from_sequence(
    g: Value, y: Value, input_sequence: Value, *, axis: int, new_axis: int
) -> Any:
    """y = concat(x0, x1, ...)        dxi = the part of g that xi became"""
    length = _length(input_sequence)
    if new_axis:
        return SequenceCotangent(
            {i: op.Gather(g, np.array(i, np.int64), axis=axis) for i in range(length)}
        )
    elements = [op.SequenceAt(input_sequence, np.array(i, np.int64)) for i in range(length)]
    for element in elements:
        if element.type.shape is None:  # a sequence that began empty may hold tensors of any rank
            element.graph.annotate(element, TensorType(element.elem_type, (None,) * g.rank))
    sizes = concat_shape(*(dims_of(e, [axis]) for e in elements))
    parts = op.Split(g, sizes, axis=axis, outputs=length)
    return SequenceCotangent(dict(enumerate(parts)))


@vjp("SplitToSequence")
def split_to_sequence(
    g: Any, y: Value, x: Value, split: Value | None, *, axis: int, keepdims: int
) -> tuple[Value, None]:
    """y = split(x)        dx = the gi one after the other, zeros where there is none"""
    sizes = _sizes(x, split, axis)
    axis %= x.rank
    found = g.resolved(len(sizes))
    squeezed = split is None and not keepdims
    parts = []
    for i, size in enumerate(sizes):
        if i in found:
            parts.append(found[i].unsqueeze(axis) if squeezed else found[i])
        else:
            shape = concat_shape(
                dims_of(x, range(axis)), [size], dims_of(x, range(axis + 1, x.rank))
            )
            parts.append(op.Expand(np.zeros(1, x.dtype), shape))
    return (parts[0] if len(parts) == 1 else op.Concat(*parts, axis=axis)), None


@vjp("Optional", "OptionalGetElement")
def optional(g: Any, y: Value, x: Value | None) -> Any:
    """y = x        dx = g"""
    return None if x is None else g


@composite("SequenceMap")
def sequence_map(
    input_sequence: Value, *additional_inputs: Value, body: GraphProto
) -> tuple[Value, ...]:
    """y = [body(x, more) for x in seq]        element by element, as many as there are"""
    graph = current()
    rows = []
    for i in range(_length(input_sequence)):
        position = np.array(i, np.int64)
        rest = [a if graph.is_tensor(a) else op.SequenceAt(a, position) for a in additional_inputs]
        rows.append(spliced(graph, body, [op.SequenceAt(input_sequence, position), *rest]))
    if not rows:
        raise GradientError(
            f"SequenceMap goes over {str(input_sequence)!r}, which is empty: there is nothing to "
            f"differentiate."
        )
    return tuple(op.SequenceConstruct(*column) for column in zip(*rows, strict=True))


no_gradient("SequenceEmpty", "SequenceLength", "OptionalHasElement", reason="no input to derive by")


def _sizes(x: Value, split: Value | None, axis: int) -> list[int]:
    """The lengths of the pieces of a `SplitToSequence`."""
    size = x.shape[axis]
    given = None if split is None else split.constant
    if given is not None and given.ndim == 1:
        return [int(s) for s in given]
    if not isinstance(size, int) or (split is not None and given is None):
        raise GradientError(
            f"{str(x)!r} is split into a sequence whose length is only known when the model runs. "
            f"Its gradient needs a fixed size along axis {axis}, and a constant split."
        )
    step = 1 if given is None else int(given)
    return [min(step, size - start) for start in range(0, size, step)]


def _position(seq: Value, position: Value) -> int:
    constant = position.constant
    if constant is None:
        raise GradientError(
            f"An element of the sequence {str(seq)!r} is taken at a position that is only known "
            f"when the model runs; its gradient needs a constant position."
        )
    return int(constant)


def _length(seq: Value) -> int:
    """The length of a sequence, from the nodes that made it."""
    node = seq.graph.producer(seq)
    if node is not None:
        first = seq.graph.value(node.input[0]) if node.input else seq
        if node.op_type == "SequenceConstruct":
            return len(node.input)
        if node.op_type == "SequenceEmpty":
            return 0
        if node.op_type in ("SequenceInsert", "SequenceErase", "Identity"):
            change = {"SequenceInsert": 1, "SequenceErase": -1, "Identity": 0}
            return _length(first) + change[node.op_type]
        if node.op_type == "SplitToSequence":
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            split = seq.graph.value(node.input[1]) if len(node.input) > 1 else None
            return len(_sizes(first, split, axis))
    raise GradientError(
        f"The length of the sequence {str(seq)!r} is only known when the model runs; its gradient "
        f"needs a sequence that SequenceConstruct, SequenceInsert or SplitToSequence made."
    )
