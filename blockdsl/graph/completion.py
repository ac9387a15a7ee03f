"""Types that ONNX's inference of a whole model leaves open.

ONNX follows shapes through a model, but not the integers that small programs of nodes compute: a
`Slice` or `Reshape` to a computed place has unknown dimensions or no rank. They are followed here,
and what reads them is typed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping

import numpy as np
from onnx import NodeProto, TensorProto, TensorShapeProto, TypeProto

from blockdsl.graph.declarations import believed
from blockdsl.graph.fold import Known, as_tensor, fold, known, reshaped
from blockdsl.graph.pool_windows import doubtful_axes
from blockdsl.graph.tensor import FLOATS, TensorType, array_of, known_dim

Types = MutableMapping[str, TypeProto]


def complete(
    nodes: Iterable[NodeProto],
    types: Types,
    constants: MutableMapping[str, TensorProto],
    declared: Mapping[str, TypeProto],
    infer: Callable[[NodeProto], Mapping[str, TypeProto]],
    evaluate: Callable[[NodeProto], Mapping[str, np.ndarray]],
) -> None:
    """Add what is known of types and integers once the integers that nodes compute are followed.

    Args:
        nodes: The nodes of a model, in order.
        types: The types of its tensors; those that are known better are replaced.
        constants: Its small constants; integers that turn out to be constant are added.
        declared: The types that the model declares, for what inference does not know.
        infer: ONNX's inference of one node, from `types` and `constants` as they are.
        evaluate: The integers that a node computes from `constants`.
    """
    integers: dict[str, Known] = {}
    for name, tensor in constants.items():
        value = None if tensor.data_type in FLOATS else known(array_of(tensor))
        if value is not None:
            integers[name] = value
    news: set[str] = set()
    mended: set[str] = set()
    for node in nodes:
        results = [name for name in node.output if name]
        decided = node.op_type == "If" and not node.domain and node.input[0] in constants
        if decided or doubtful_axes(node, types) or not mended.isdisjoint(node.input):
            # Exporters claim for both branches what only the one that is not taken returns.
            mended.update(_mend(types, infer(node)))
        elif not all(has_rank(types.get(name)) for name in results) or (
            not news.isdisjoint(node.input) and any(_is_open(types[name]) for name in results)
        ):
            news.update(_retype(node, types, integers, infer))
        for name in results:
            if name in declared and not has_rank(types.get(name)):
                types[name] = believed(declared[name], types.get(name))
                news.add(name)
        if all(name in constants for name in results):
            continue
        value = fold(node, integers, types)
        values = evaluate(node) if value is None else {results[0]: value}
        for name, entries in values.items():
            integers[name] = entries.astype(object)
            constant = as_tensor(entries, types.get(name))
            if constant is not None and name not in constants:
                constants[name] = constant
                news.add(name)


def _mend(types: Types, found: Mapping[str, TypeProto]) -> list[str]:
    """Give tensors the types that were found; the names of those that had others."""
    wrong = [name for name, proto in found.items() if has_rank(proto) and types.get(name) != proto]
    types.update((name, found[name]) for name in wrong)
    return wrong


def _retype(
    node: NodeProto,
    types: Types,
    integers: Mapping[str, Known],
    infer: Callable[[NodeProto], Mapping[str, TypeProto]],
) -> list[str]:
    """Type a node's outputs anew; the names of those that are known better now."""
    found = dict(infer(node))
    if node.op_type == "Reshape" and not node.domain and node.input[1] in integers:
        source = TensorType.of(types[node.input[0]]) if node.input[0] in types else None
        if source is not None:
            shape = reshaped(integers[node.input[1]], source.shape)
            found[node.output[0]] = TensorType(source.elem_type, shape).proto()
    changed = []
    for name, proto in found.items():
        better = together(types.get(name), proto)
        if better is not None:
            types[name] = better
            changed.append(name)
    return changed


def together(old: TypeProto | None, new: TypeProto) -> TypeProto | None:
    """What two types of a tensor say together, `None` if the new one adds nothing."""
    if old is None or not (old.tensor_type.elem_type or has_rank(old)):
        return new
    if old.tensor_type.elem_type != new.tensor_type.elem_type:
        return None
    if not has_rank(old):
        return new
    if not (_is_open(old) and new.tensor_type.HasField("shape")):
        return None
    merged = TypeProto()
    merged.CopyFrom(old)  # which may be part of the user's model
    dims, others = merged.tensor_type.shape.dim, new.tensor_type.shape.dim
    if len(dims) != len(others):
        return None
    for dim, other in zip(dims, others, strict=True):
        if _is_open_dim(dim) and not _is_open_dim(other):
            dim.CopyFrom(other)
    return merged if merged != old else None


def has_rank(proto: TypeProto | None) -> bool:
    """Whether the rank of a tensor, or of those in a sequence, is known; or it is neither."""
    if proto is None:
        return False
    if proto.HasField("sequence_type"):
        return has_rank(proto.sequence_type.elem_type)
    return not proto.HasField("tensor_type") or proto.tensor_type.HasField("shape")


def _is_open(proto: TypeProto) -> bool:
    return any(map(_is_open_dim, proto.tensor_type.shape.dim))


def _is_open_dim(dim: TensorShapeProto.Dimension) -> bool:
    """Whether a dimension is unknown: without a name, or with one of ONNX's making."""
    return not dim.HasField("dim_value") and (
        known_dim(dim.dim_param) is None or dim.dim_param.startswith("unk__")
    )
