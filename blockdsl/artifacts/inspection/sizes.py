"""Sizes of the exporter's example that a model keeps, and shapes that it declares wrongly."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from onnx import GraphProto, ModelProto, TypeProto, ValueInfoProto, shape_inference

from blockdsl.artifacts.inspection.finding import Finding
from blockdsl.artifacts.inspection.subject import Subject
from blockdsl.graph.check import skeleton
from blockdsl.graph.declarations import contradictions, remove_declarations
from blockdsl.graph.tensor import FLOATS

STATIC, BAKED = "fixed batch size", "size of the example"
_BATCH = re.compile(r"batch|^b$|^n$|^bs$", re.IGNORECASE)
_SIZES = {0: 13, 1: 11}
"""Sizes to try for the first and the second axis: primes, which no product of others equals."""


def sizes(subject: Subject) -> Iterator[Finding]:
    """Yield findings on sizes that should be symbolic and are numbers."""
    inputs = _inputs(subject.model)
    yield from _static_batch(subject, inputs)
    yield from _baked(subject, inputs)


def wrong_declarations(graph: GraphProto, types: Mapping[str, TypeProto]) -> Iterator[Finding]:
    """Yield a finding on declared types that contradict the inferred ones."""
    wrong = contradictions(graph, types)
    if wrong:
        shown = "; ".join(list(wrong.values())[:3]) + ("; ..." if len(wrong) > 3 else "")
        yield Finding(
            "wrong declared shapes",
            f"{len(wrong)} declared types contradict the nodes of the model, and the inferred ones "
            f"are used: {shown}.",
            "Nothing has to be done; to correct the file, remove its value_infos and the shapes of "
            "its outputs and call onnx.shape_inference.infer_shapes.",
            tuple(wrong),
        )


def _inputs(model: ModelProto) -> list[ValueInfoProto]:
    own = {tensor.name for tensor in model.graph.initializer}
    return [
        value
        for value in model.graph.input
        if value.name not in own and value.type.tensor_type.HasField("shape")
    ]


def _static_batch(subject: Subject, inputs: list[ValueInfoProto]) -> Iterator[Finding]:
    shapes = {v.name: v.type.tensor_type.shape.dim for v in inputs if v.type.tensor_type.shape.dim}
    symbols = [d.dim_param for dims in shapes.values() for d in dims if not d.HasField("dim_value")]
    if any(_BATCH.search(symbol) for symbol in symbols):
        return
    if not shapes or not all(dims[0].HasField("dim_value") for dims in shapes.values()):
        return
    shown = ", ".join(f"{name!r} ({dims[0].dim_value})" for name, dims in shapes.items())
    first = next(iter(shapes))
    yield Finding(
        STATIC,
        f"The first axis of {shown} has a fixed size: every batch must have it, the last one too.",
        f"{_dynamic_advice(subject, first)}",
        tuple(shapes),
    )


def _dynamic_advice(subject: Subject, name: str) -> str:
    if subject.exporter.is_torchscript:
        return f"Pass dynamic_axes={{{name!r}: {{0: 'batch'}}}} to torch.onnx.export."
    if subject.exporter.has_calls:
        return (
            f"Pass dynamic_shapes={{{name!r}: {{0: torch.export.Dim('batch')}}}} to "
            f"torch.onnx.export."
        )
    return "Export the model with a symbolic first axis if its batches differ in size."


def _baked(subject: Subject, inputs: list[ValueInfoProto]) -> Iterator[Finding]:
    """Yield a finding for an axis that is symbolic and takes one size only.

    The axis is given sizes that nobody exports with, and the shapes of the model are inferred.
    """
    for axis in (0, 1):
        symbols = {
            value.type.tensor_type.shape.dim[axis].dim_param
            for value in inputs
            if axis < _rank(value) and (axis == 0 or _is_sequence(value))
        } - {""}
        if not symbols:
            continue
        problem = _problem(subject.model, dict.fromkeys(symbols, _SIZES[axis]))
        if problem is not None and _problem(subject.model, {}) is None:
            named = " and ".join(map(repr, sorted(symbols)))
            yield Finding(
                BAKED,
                f"The axis {named} of the inputs is symbolic, but the model runs with the size of "
                f"the exporter's example only: {problem}",
                "Take sizes from tensors where the module computes them (x.shape[0], not a "
                "number), and export again.",
                tuple(v.name for v in inputs),
            )


def _rank(value: ValueInfoProto) -> int:
    return len(value.type.tensor_type.shape.dim)


def _is_sequence(value: ValueInfoProto) -> bool:
    """Whether the second axis of an input is that of a sequence, as far as its type tells."""
    floats = value.type.tensor_type.elem_type in FLOATS
    return _rank(value) == (3 if floats else 2)


def _problem(model: ModelProto, sizes: Mapping[str, int]) -> str | None:
    """Return why the model cannot run with some sizes; None if it can, as far as shapes tell."""
    bare = skeleton(model)
    remove_declarations(bare.graph)
    for value in bare.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    try:
        inferred = shape_inference.infer_shapes(bare, strict_mode=True, data_prop=True)
    except shape_inference.InferenceError as error:
        return " ".join(str(error).split())[:300]
    return _reshape_problem(inferred)


def _reshape_problem(model: ModelProto) -> str | None:
    """Return which Reshape asks for another number of elements than there are."""
    shapes = {value.name: _shape(value) for value in (*model.graph.value_info, *model.graph.input)}
    for node in model.graph.node:
        if node.op_type != "Reshape":
            continue
        data, output = shapes.get(node.input[0]), shapes.get(node.output[0])
        if data and output and _count(data) != _count(output):
            return f"{node.name or node.output[0]!r} reshapes {data} to {output}."
    return None


def _shape(value: ValueInfoProto) -> list[int] | None:
    dims = value.type.tensor_type.shape.dim
    return [d.dim_value for d in dims] if all(d.HasField("dim_value") for d in dims) else None


def _count(shape: list[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
