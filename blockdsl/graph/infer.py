"""Type and shape inference of one node.

ONNX's own inference does the work. It does not follow shapes that are computed at run time, so
that a `Reshape` to a computed shape has no rank; where the length of the shape vector is known,
the rank is, and that is all that gradients need (dimensions need not be known).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from onnx import (
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TypeProto,
    checker,
    defs,
    shape_inference,
)

from blockdsl.errors import GraphError
from blockdsl.graph.pool_windows import doubtful_axes
from blockdsl.graph.schema import Operator
from blockdsl.graph.tensor import TensorType

Types = Mapping[str, TypeProto]


def infer_outputs(
    operator: Operator,
    node: NodeProto,
    types: Types,
    constants: Mapping[str, TensorProto],
    opsets: Sequence[OperatorSetIdProto],
    ir_version: int,
) -> dict[str, TypeProto]:
    """The types of a node's outputs.

    Args:
        operator: The operator in the model's opset.
        node: The node.
        types: The type of each of its inputs.
        constants: The values of those inputs that are constant.
        opsets: The opset imports of the model.
        ir_version: The IR version of the model.

    Returns:
        A type per output name; an output about which nothing can be said is missing.

    Raises:
        GraphError: The inputs do not fit the operator or each other.
    """
    if operator.name in _SHAPES_KEPT and not operator.domain:
        return {node.output[0]: types[node.input[0]]}
    assert operator.schema is not None
    schema = operator.schema
    if operator.name in _INFERRED_AS and not operator.domain:
        schema = defs.get_schema(_INFERRED_AS[operator.name], operator.version)
    if operator.name == "Transpose" and not operator.domain:
        _check_permutation(operator, node, types)
    try:
        found = shape_inference.infer_node_outputs(
            schema,
            cast(NodeProto, _OfPresentInputs(node)),
            dict(types),
            dict(constants),
            None,
            list(opsets),
            ir_version,
        )
    except (shape_inference.InferenceError, checker.ValidationError, RuntimeError) as error:
        raise unfit(operator, node, types, error) from error
    if operator.name == "SequenceInsert" and not operator.domain and node.output[0] in found:
        # A sequence that began empty says nothing of its elements: they are like the first one.
        _supply_rank(found[node.output[0]].sequence_type.elem_type, _rank(types, node.input[1]))
    for axis in doubtful_axes(node, types):
        for name in filter(None, node.output):
            found[name].tensor_type.shape.dim[axis].Clear()
    supplement = _RANK_RULES.get(operator.name) if not operator.domain else None
    if supplement is not None:
        for name in node.output:
            if name in found:
                _supply_rank(found[name], supplement(node, types))
    return found


def _check_permutation(operator: Operator, node: NodeProto, types: Types) -> None:
    """Check what ONNX's inference does not: that a permutation has all axes of its input."""
    rank = _rank(types, node.input[0])
    for attribute in node.attribute:
        if attribute.name == "perm" and rank is not None and len(attribute.ints) != rank:
            text = f"perm has {len(attribute.ints)} axes, and the input {rank}"
            raise unfit(operator, node, types, ValueError(text))


class _OfPresentInputs:
    """A node for `infer_node_outputs`, which before onnx 1.18 wants types for absent inputs."""

    def __init__(self, node: NodeProto) -> None:
        self.input = [name for name in node.input if name]
        self.SerializeToString = node.SerializeToString


_INFERRED_AS = {"GreaterOrEqual": "Greater", "LessOrEqual": "Less"}
"""What ONNX has no inference of (before opset 16, or an onnx before 1.20 at all), and what has the
same."""

_SHAPES_KEPT = frozenset({"GroupNormalization", "MeanVarianceNormalization"})
"""Operators that ONNX infers through their function bodies, which lose the shape of the input, or
not at all where they are deprecated."""


def _supply_rank(proto: TypeProto, rank: int | None) -> None:
    """Give a tensor type that has no shape one of unknown dimensions."""
    if rank is not None and not proto.tensor_type.HasField("shape"):
        proto.tensor_type.shape.SetInParent()
        for _ in range(rank):
            proto.tensor_type.shape.dim.add()


def unfit(operator: Operator, node: NodeProto, types: Types, error: Exception) -> GraphError:
    """The error for inputs that do not fit, with what ONNX's inference says of them."""
    given = ", ".join(f"{n}: {describe(types[n])}" for n in node.input if n in types)
    reason = str(error).split("]")[-1].strip() or str(error)
    advice = ". Convert one of them: x.cast(dtype)" if "inconsistent type" in reason else ""
    return GraphError(
        f"{operator} cannot take these inputs ({given}): {reason} (node {node.name!r}){advice}"
    )


def describe(proto: TypeProto) -> str:
    """A type as error messages show it."""
    tensor = TensorType.of(proto)
    return str(tensor) if tensor else str(proto.WhichOneof("value")).removesuffix("_type")


def _rank(types: Types, name: str) -> int | None:
    tensor = TensorType.of(types[name]) if name in types else None
    return None if tensor is None or tensor.shape is None else len(tensor.shape)


def _length(types: Types, name: str) -> int | None:
    tensor = TensorType.of(types[name]) if name in types else None
    if tensor is None or tensor.shape is None or len(tensor.shape) != 1:
        return None
    length = tensor.shape[0]
    return length if isinstance(length, int) else None


def _from_shape_vector(position: int) -> Callable[[NodeProto, Types], int | None]:
    return lambda node, types: _length(types, node.input[position])


def _of_expand(node: NodeProto, types: Types) -> int | None:
    rank, length = _rank(types, node.input[0]), _length(types, node.input[1])
    return None if rank is None or length is None else max(rank, length)


def _same_rank(node: NodeProto, types: Types) -> int | None:
    return _rank(types, node.input[0])


def _of_reduction(node: NodeProto, types: Types) -> int | None:
    """What does not depend on which axes are computed: their number, or that there are all."""
    settings = {a.name: a.i for a in node.attribute}
    rank = _rank(types, node.input[0])
    if settings.get("keepdims", 1):
        return rank
    if "axes" in settings or any(node.input[1:]):
        removed = _length(types, node.input[1]) if any(node.input[1:]) else None
        return rank - removed if rank and removed else None
    return rank if settings.get("noop_with_empty_axes") else 0


def _of_compress(node: NodeProto, types: Types) -> int | None:
    return _rank(types, node.input[0]) if any(a.name == "axis" for a in node.attribute) else 1


def _of_squeeze(node: NodeProto, types: Types) -> int | None:
    rank, removed = _rank(types, node.input[0]), _length(types, "".join(node.input[1:]))
    return None if rank is None or removed is None else rank - removed


def _of_unsqueeze(node: NodeProto, types: Types) -> int | None:
    axes = "".join(node.input[1:])
    # ONNX Runtime takes a scalar for one axis.
    added = 1 if _rank(types, axes) == 0 else _length(types, axes)
    rank = _rank(types, node.input[0])
    return None if rank is None or added is None else rank + added


def _of_gather_nd(node: NodeProto, types: Types) -> int | None:
    data = TensorType.of(types[node.input[0]])
    indices = TensorType.of(types[node.input[1]])
    if not (data and data.shape is not None and indices and indices.shape):
        return None
    batch = sum(a.i for a in node.attribute if a.name == "batch_dims")
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        return None
    return int(len(data.shape) + len(indices.shape) - depth - 1 - batch)


_RANK_RULES: dict[str, Callable[[NodeProto, Types], int | None]] = {
    "Reshape": _from_shape_vector(1),
    "ConstantOfShape": _from_shape_vector(0),
    "Compress": _of_compress,
    "Expand": _of_expand,
    "GatherND": _of_gather_nd,
    **dict.fromkeys(
        (
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceMax",
            "ReduceMean",
            "ReduceMin",
            "ReduceProd",
            "ReduceSum",
            "ReduceSumSquare",
        ),
        _of_reduction,
    ),
    "Squeeze": _of_squeeze,
    "Unsqueeze": _of_unsqueeze,
    **dict.fromkeys(("CenterCropPad", "Concat", "Split", "TopK"), _same_rank),
    "Attention": lambda node, types: 4,  # of the caches: the first output has its shape always
    "STFT": lambda node, types: 4,
    "Tile": _same_rank,
    "Pad": _same_rank,
    "Slice": _same_rank,
    "Resize": _same_rank,
    "Conv": _same_rank,
    "ConvTranspose": _same_rank,
    "MaxPool": _same_rank,
    "AveragePool": _same_rank,
    "MaxUnpool": _same_rank,
}
