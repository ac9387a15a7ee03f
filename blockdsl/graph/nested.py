"""Types that go into the bodies of `If`, `Loop` and `Scan`, and come out again.

ONNX's inference sees a body without the constants of the scope around it, so that what a node with
bodies returns can be left without a rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import GraphProto, NodeProto, TensorProto, TypeProto, helper

from blockdsl.graph.tensor import TensorType

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


def leaving(
    node: NodeProto, made: Sequence[Sequence[Type]], branch: int | None = None
) -> list[Type]:
    """What is known of a node's outputs from what its bodies return.

    Args:
        node: The node.
        made: The types that each body returns.
        branch: The branch that an `If` takes, if that is known.

    Returns:
        The types, without dimensions unless the branch is known.
    """
    if branch is not None:
        return list(made[branch])
    if node.op_type == "If":
        return [resized(a or b) for a, b in zip(*made, strict=True)]
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
    return _with_rank(proto, 0)


def _stacked(proto: Type) -> Type:
    return _with_rank(proto, 1)


def _with_rank(proto: Type, more: int) -> Type:
    if proto is not None and proto.HasField("sequence_type"):
        element = _with_rank(proto.sequence_type.elem_type, 0)
        return None if element is None else helper.make_sequence_type_proto(element)
    tensor = None if proto is None else TensorType.of(proto)
    if tensor is None or tensor.shape is None:
        return None if more else proto
    return TensorType(tensor.elem_type, (None,) * (len(tensor.shape) + more)).proto()


def _slice(proto: Type, axis: int) -> Type:
    tensor = None if proto is None else TensorType.of(proto)
    if tensor is None or not tensor.shape:
        return None
    axis %= len(tensor.shape)
    return TensorType(tensor.elem_type, tensor.shape[:axis] + tensor.shape[axis + 1 :]).proto()
