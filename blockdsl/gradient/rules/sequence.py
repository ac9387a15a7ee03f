"""Rules of sequences and optionals.

Where positions and lengths are known, they work on the cotangents of single elements; otherwise on
sequences of cotangents: see `SequenceCotangent`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import GraphProto, TensorProto

from blockdsl.errors import GradientError
from blockdsl.gradient.composites import composite
from blockdsl.gradient.functions import spliced
from blockdsl.gradient.registry import no_gradient, vjp
from blockdsl.gradient.sequences import (
    SequenceCotangent,
    element,
    from_the_front,
    mapped,
    nothing,
)
from blockdsl.graph import current, op
from blockdsl.graph.control import repeat
from blockdsl.graph.shapes import concat_shape, dims_of, typed_as
from blockdsl.graph.tensor import TensorType
from blockdsl.graph.value import Value


@vjp("SequenceConstruct")
def sequence_construct(g: Any, y: Value, *inputs: Value) -> list[Value | None]:
    """y = [x0, x1, ...]        dxi = gi"""
    if g.is_known:
        found = g.resolved(len(inputs))
        return [found.get(i) for i in range(len(inputs))]
    whole = g.dense(y)
    return [element(whole, np.array(i, np.int64), x) for i, x in enumerate(inputs)]


@vjp("SequenceAt")
def sequence_at(g: Value, y: Value, seq: Value, position: Value) -> tuple[Any, None]:
    """y = seq[i]        dseq = {i: g}"""
    known = position.constant
    if known is None:
        return SequenceCotangent(placed=[(position.cast(np.int64), g)]), None
    return SequenceCotangent({int(known): g}), None


@vjp("SequenceInsert")
def sequence_insert(
    g: Any, y: Value, seq: Value, tensor: Value, position: Value | None
) -> tuple[Any, Value | None, None]:
    """y = seq with x put in at i        dx = gi, the others move down"""
    length = _length(seq)
    at = _position(position, length)
    if length is None or at is None or not g.is_known:
        whole = g.dense(y)
        place = _place(position, whole, 1)
        rest = SequenceCotangent(wholes=[op.SequenceErase(whole, place)])
        return rest, element(whole, place, tensor), None
    found = g.resolved(length + 1)
    rest = SequenceCotangent({p - (p > at): value for p, value in found.items() if p != at})
    return rest, found.get(at), None


@vjp("SequenceErase")
def sequence_erase(g: Any, y: Value, seq: Value, position: Value | None) -> tuple[Any, None]:
    """y = seq without element i        those behind it move up"""
    length = _length(seq)
    at = _position(position, length)
    if length is None or at is None or not g.is_known:
        whole = g.dense(y)
        place = None if position is None else from_the_front(position, op.SequenceLength(seq))
        return SequenceCotangent(wholes=[op.SequenceInsert(whole, nothing(seq), place)]), None
    at = length - 1 if position is None else at
    found = g.resolved(length - 1)
    return SequenceCotangent({p + (p >= at): value for p, value in found.items()}), None


@vjp("ConcatFromSequence")
def concat_from_sequence(
    g: Value, y: Value, input_sequence: Value, *, axis: int, new_axis: int
) -> Any:
    """y = concat(x0, x1, ...)        dxi = the part of g that xi became"""
    length = _length(input_sequence)
    if length is None:
        return SequenceCotangent(wholes=[_taken_apart(g, input_sequence, axis, new_axis)])
    if new_axis:
        return SequenceCotangent(
            {i: op.Gather(g, np.array(i, np.int64), axis=axis) for i in range(length)}
        )
    elements = [op.SequenceAt(input_sequence, np.array(i, np.int64)) for i in range(length)]
    for x in elements:
        if x.type.shape is None:  # a sequence that began empty may hold tensors of any rank
            x.graph.annotate(x, TensorType(x.elem_type, (None,) * g.rank))
    sizes = concat_shape(*(dims_of(x, [axis]) for x in elements))
    parts = op.Split(g, sizes, axis=axis, outputs=length)
    return SequenceCotangent(dict(enumerate(parts)))


def _taken_apart(g: Value, seq: Value, axis: int, new_axis: int) -> Value:
    """The parts of a cotangent that the elements of a sequence became, as a sequence."""
    if new_axis:
        return op.SplitToSequence(g, axis=axis, keepdims=0)
    sizes = mapped(
        lambda i: op.Gather(op.Shape(op.SequenceAt(seq, i)), np.array([axis]), axis=0),
        seq,
        TensorProto.INT64,
    )
    return op.SplitToSequence(g, op.ConcatFromSequence(sizes, axis=0), axis=axis)


@vjp("SplitToSequence")
def split_to_sequence(
    g: Any, y: Value, x: Value, split: Value | None, *, axis: int, keepdims: int
) -> tuple[Value, None]:
    """y = split(x)        dx = the gi one after the other, zeros where there is none"""
    sizes = _sizes(x, split, axis)
    axis %= x.rank
    squeezed = split is None and not keepdims
    if sizes is None or not g.is_known:
        whole = g.dense(y)
        filled = mapped(
            lambda i: op.Expand(op.SequenceAt(whole, i), op.Shape(op.SequenceAt(y, i))), whole
        )
        joined = op.ConcatFromSequence(filled, axis=axis, new_axis=int(squeezed))
        joined.graph.annotate(joined, TensorType(x.elem_type, (None,) * x.rank))
        return typed_as(joined, x), None
    found = g.resolved(len(sizes))
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
    length = _length(input_sequence)

    def outputs(position: Any) -> list[Value]:
        rest = [a if graph.is_tensor(a) else op.SequenceAt(a, position) for a in additional_inputs]
        given = [op.SequenceAt(input_sequence, position), *rest]
        return spliced(current(), body, given)

    if length is None:
        kinds = [output.type.tensor_type.elem_type for output in body.output]
        return tuple(
            repeat(
                lambda i, made: [
                    op.SequenceInsert(*pair) for pair in zip(made, outputs(i), strict=True)
                ],
                [op.SequenceEmpty(dtype=kind) for kind in kinds],
                op.SequenceLength(input_sequence),
            )
        )
    rows = [outputs(np.array(i, np.int64)) for i in range(length)]
    if not rows:
        raise GradientError(
            f"SequenceMap goes over {str(input_sequence)!r}, which is empty: there is nothing to "
            f"differentiate."
        )
    return tuple(op.SequenceConstruct(*column) for column in zip(*rows, strict=True))


no_gradient("SequenceEmpty", "SequenceLength", "OptionalHasElement", reason="no input to derive by")


def _sizes(x: Value, split: Value | None, axis: int) -> list[int] | None:
    """The lengths of the pieces of a `SplitToSequence`, if they are known."""
    size = x.shape[axis]
    given = None if split is None else split.constant
    if given is not None and given.ndim == 1:
        return [int(s) for s in given]
    if not isinstance(size, int) or (split is not None and given is None):
        return None
    step = 1 if given is None else int(given)
    return [min(step, size - start) for start in range(0, size, step)]


def _position(position: Value | None, length: int | None) -> int | None:
    """A position from the front, if it is known: behind the last by default."""
    if length is None:
        return None
    if position is None:
        return length
    known = position.constant
    return None if known is None else int(known) + (length if known < 0 else 0)


def _place(position: Value | None, longer: Value, by: int) -> Value:
    """A position in a sequence from the front, for another sequence that is longer."""
    length = op.SequenceLength(longer) - by
    return length if position is None else from_the_front(position.cast(np.int64), length)


def _length(seq: Value) -> int | None:
    """The length of a sequence, from the nodes that made it, if it is known."""
    node = seq.graph.producer(seq)
    if node is None:
        return None
    first = seq.graph.value(node.input[0]) if node.input else seq
    if node.op_type == "SequenceConstruct":
        return len(node.input)
    if node.op_type == "SequenceEmpty":
        return 0
    if node.op_type in ("SequenceInsert", "SequenceErase", "Identity"):
        change = {"SequenceInsert": 1, "SequenceErase": -1, "Identity": 0}
        length = _length(first)
        return None if length is None else length + change[node.op_type]
    if node.op_type == "SplitToSequence":
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        split = seq.graph.value(node.input[1]) if len(node.input) > 1 else None
        sizes = _sizes(first, split, axis)
        return None if sizes is None else len(sizes)
    return None
