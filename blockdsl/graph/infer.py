"""Type and shape inference of one node.

ONNX's own inference does the work. It does not follow shapes that are computed at run time, so
that a `Reshape` to a computed shape has no rank; where the length of the shape vector is known,
the rank is, and that is all that gradients need (dimensions need not be known).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnx import NodeProto, OperatorSetIdProto, TensorProto, TypeProto, shape_inference

from blockdsl.errors import GraphError
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
    assert operator.schema is not None
    try:
        found = shape_inference.infer_node_outputs(
            operator.schema, node, dict(types), dict(constants), None, list(opsets), ir_version
        )
    except (shape_inference.InferenceError, RuntimeError) as error:
        given = ", ".join(f"{n}: {describe(types[n])}" for n in node.input if n in types)
        reason = str(error).split("]")[-1].strip() or str(error)
        raise GraphError(
            f"{operator} cannot take these inputs ({given}): {reason} (node {node.name!r})"
        ) from error
    supplement = _RANK_RULES.get(operator.name) if not operator.domain else None
    if supplement is not None and node.output[0] in found:
        output = found[node.output[0]].tensor_type
        if not output.HasField("shape"):
            rank = supplement(node, types)
            if rank is not None:
                output.shape.Clear()
                for _ in range(rank):
                    output.shape.dim.add()
                output.shape.SetInParent()
    return found


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


_RANK_RULES: dict[str, Callable[[NodeProto, Types], int | None]] = {
    "Reshape": _from_shape_vector(1),
    "ConstantOfShape": _from_shape_vector(0),
    "Expand": _of_expand,
    "Tile": _same_rank,
    "Pad": _same_rank,
    "Slice": _same_rank,
    "Resize": _same_rank,
}
