"""Types that go into the bodies of `If`, `Loop` and `Scan`, and come out again.

ONNX's inference sees a body without the constants of the scope around it, so that what a node with
bodies returns can be left without a rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnx import GraphProto, NodeProto, TensorProto, TypeProto, helper

from blockdsl.graph.tensor import Shape, TensorType

Type = TypeProto | None

_FIRST_SCAN = 9
"""The opset from which on `Scan` has no batches."""


def entering(
    node: NodeProto, types: Mapping[str, TypeProto], opset: int
) -> list[tuple[GraphProto, list[Type]]]:
    """The bodies of a node and what is known of their inputs."""
    settings = _attributes(node)
    given = [types.get(name) for name in node.input]
    if node.op_type == "If":
        return [(settings["then_branch"], []), (settings["else_branch"], [])]
    if node.op_type == "Loop":
        counter = helper.make_tensor_type_proto(TensorProto.INT64, [])
        going = helper.make_tensor_type_proto(TensorProto.BOOL, [])
        return [(settings["body"], [counter, going, *map(resized, given[2:])])]
    if node.op_type == "Scan" and opset >= _FIRST_SCAN:
        count = settings["num_scan_inputs"]
        first = len(given) - count
        axes = settings.get("scan_input_axes") or [0] * count
        slices = [_slice(x, axis) for x, axis in zip(given[first:], axes, strict=True)]
        return [(settings["body"], [*given[:first], *slices])]
    return []


def through_loop(
    node: NodeProto,
    types: Mapping[str, TypeProto],
    infer_body: Callable[[Sequence[Type]], list[Type]],
) -> list[Type]:
    """What is known of the outputs of a `Loop`: of its states, what every step keeps.

    Args:
        node: The node.
        types: The types of its inputs.
        infer_body: The types that the body returns, from those of its inputs.
    """
    given = states = [types.get(name) for name in node.input[2:]]
    counter = helper.make_tensor_type_proto(TensorProto.INT64, [])
    going = helper.make_tensor_type_proto(TensorProto.BOOL, [])
    while True:
        returned = infer_body([counter, going, *states])[1:]
        if any(map(_differ_in_kind, states, returned)):
            return leaving(node, [infer_body([counter, going, *map(resized, given)])])
        kept = list(map(_common, states, returned))
        if kept == states:  # every step keeps what this one does
            return [*states, *map(_stacked, returned[len(states) :])]
        states = kept


def _differ_in_kind(a: Type, b: Type) -> bool:
    """Whether two types are known to be of different kinds, or of different ranks."""
    if a is not None and b is not None and a.WhichOneof("value") != b.WhichOneof("value"):
        return True
    first, second = _shape(a), _shape(b)
    return first is not None and second is not None and len(first) != len(second)


def _common(a: Type, b: Type) -> Type:
    """What is known of a tensor that has one of two types, of one rank if both are known."""
    first, second = _shape(a), _shape(b)
    tensor = None if b is None else TensorType.of(b)
    if first is None or second is None or tensor is None or len(first) != len(second):
        return resized(b)
    dims = tuple(d if d == e else None for d, e in zip(first, second, strict=True))
    return TensorType(tensor.elem_type, dims).proto()


def _shape(proto: Type) -> Shape | None:
    tensor = None if proto is None else TensorType.of(proto)
    return None if tensor is None else tensor.shape


def ranks_differ(one: Sequence[Type], other: Sequence[Type]) -> bool:
    """Whether two branches return tensors of different ranks."""
    ranks = [tuple(map(_rank, pair)) for pair in zip(one, other, strict=True)]
    return any(a is not None and b is not None and a != b for a, b in ranks)


def _rank(proto: Type) -> int | None:
    tensor = None if proto is None else TensorType.of(proto)
    return None if tensor is None or tensor.shape is None else len(tensor.shape)


def leaving(
    node: NodeProto, made: Sequence[Sequence[Type]], branch: int | None = None
) -> list[Type]:
    """What is known of a node's outputs from what its bodies return.

    Args:
        node: The node.
        made: The types that each body returns.
        branch: The branch that an `If` takes, if that is known.

    Returns:
        The types, with the dimensions that all branches agree on.
    """
    if branch is not None:
        return list(made[branch])
    if node.op_type == "If":
        return [resized(b) if a is None else _common(b, a) for a, b in zip(*made, strict=True)]
    if node.op_type == "Loop":
        states, results = len(node.input) - 2, made[0][1:]
    else:
        states = len(node.input) - _attributes(node)["num_scan_inputs"]
        results = made[0]
    return [resized(t) if i < states else _stacked(t) for i, t in enumerate(results)]


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def resized(proto: Type) -> Type:
    """A type whose dimensions, or those of the tensors in a sequence, may change."""
    if proto is not None and proto.HasField("sequence_type"):
        element = resized(proto.sequence_type.elem_type)
        return None if element is None else helper.make_sequence_type_proto(element)
    tensor = None if proto is None else TensorType.of(proto)
    if tensor is None or tensor.shape is None:
        return proto
    return TensorType(tensor.elem_type, (None,) * len(tensor.shape)).proto()


def _stacked(proto: Type) -> Type:
    """The type of the outputs of all steps along a new first axis."""
    tensor = None if proto is None else TensorType.of(proto)
    if tensor is None or tensor.shape is None:
        return None
    return TensorType(tensor.elem_type, (None, *tensor.shape)).proto()


def _slice(proto: Type, axis: int) -> Type:
    tensor = None if proto is None else TensorType.of(proto)
    if tensor is None or not tensor.shape:
        return None
    axis %= len(tensor.shape)
    return TensorType(tensor.elem_type, tensor.shape[:axis] + tensor.shape[axis + 1 :]).proto()
