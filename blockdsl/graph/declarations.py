"""Types that a model declares for the results of its nodes, and how far they are believed.

Exporters get them wrong: another rank, the sizes of the example they traced, one symbolic name for
sizes that differ. Runtimes infer the types anew and ignore such declarations, and so does this
package: a declaration counts only where inference has nothing better, and its symbolic names never.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from itertools import chain

from onnx import GraphProto, ModelProto, NodeProto, TypeProto

from blockdsl.errors import BlockWarning
from blockdsl.graph.tensor import Dim, Shape, TensorType, is_unknown
from blockdsl.graph.walk import WITH_BODIES, subgraphs

Types = Mapping[str, TypeProto]


def declared_types(graph: GraphProto) -> dict[str, TypeProto]:
    """Return the types that a graph declares for what its nodes compute."""
    return {info.name: info.type for info in (*graph.value_info, *graph.output)}


def remove_inner_shapes(model: ModelProto) -> None:
    """Remove the shapes that bodies and functions declare for what their nodes compute."""
    functions = (function.node for function in model.functions)
    for node in chain(model.graph.node, *functions):
        if node.op_type in WITH_BODIES:
            _remove_shapes(node)
    for function in model.functions:
        del function.value_info[:]


def _remove_shapes(node: NodeProto) -> None:
    """Remove the shapes declared in a node's bodies, at any depth."""
    for body in subgraphs(node):
        for info in (*body.value_info, *body.output):
            if info.type.HasField("tensor_type"):
                info.type.tensor_type.ClearField("shape")
        for child in body.node:
            _remove_shapes(child)


def remove_declarations(graph: GraphProto) -> None:
    """Remove the types that a graph declares for what its nodes compute."""
    del graph.value_info[:]
    for output in graph.output:
        output.ClearField("type")


def believed(declared: TypeProto, inferred: TypeProto | None) -> TypeProto:
    """Return the type of a tensor whose rank inference does not know.

    Args:
        declared: The declared type. Its symbolic names are dropped: two axes of one name need not
            be of one size.
        inferred: The inferred type. If there is one, the operator is known, and only the rank of
            the declaration is used: its sizes are often those of the exporter's example.
    """
    tensor = TensorType.of(declared)
    if tensor is None or tensor.shape is None:
        return inferred or declared
    if inferred is None or not inferred.tensor_type.elem_type:
        sizes = tuple(d if isinstance(d, int) else None for d in tensor.shape)
        return TensorType(tensor.elem_type, sizes).proto()
    return TensorType(inferred.tensor_type.elem_type, (None,) * len(tensor.shape)).proto()


def contradictions(graph: GraphProto, types: Types) -> dict[str, str]:
    """Return the declarations of a graph that contradict the inferred types, in words, by names.

    Args:
        graph: The graph.
        types: The inferred types of its tensors.
    """
    wrong = {}
    for name, proto in declared_types(graph).items():
        declared, found = TensorType.of(proto), TensorType.of(types.get(name, proto))
        if declared and found and _contradict(declared, found):
            wrong[name] = f"{name!r} is declared {declared} and is {found}"
    return wrong


def correct(graph: GraphProto, types: Types) -> None:
    """Replace the declarations of a graph that contradict the inferred types, with a warning.

    Args:
        graph: The graph; its declarations are changed.
        types: The inferred types of its tensors.
    """
    wrong = contradictions(graph, types)
    if not wrong:
        return
    shown = "; ".join(list(wrong.values())[:5])
    warnings.warn(
        f"{len(wrong)} declared types of the model contradict its nodes, and the inferred ones are "
        f"used: {shown}{'; ...' if len(wrong) > 5 else ''}. Infer the types anew to be rid of this "
        f"warning: remove the value_infos and the shapes of the outputs, then call "
        f"onnx.shape_inference.infer_shapes.",
        BlockWarning,
        stacklevel=2,
    )
    _replace(graph, types, wrong)


def _replace(graph: GraphProto, types: Types, wrong: Iterable[str]) -> None:
    for infos in (graph.value_info, graph.output):
        for info in infos:
            if info.name in wrong:
                info.type.CopyFrom(types[info.name])


def _contradict(declared: TensorType, found: TensorType) -> bool:
    """Whether no tensor is of both types."""
    if declared.elem_type and found.elem_type and declared.elem_type != found.elem_type:
        return True
    if declared.shape is None or found.shape is None:
        return False
    return len(declared.shape) != len(found.shape) or _sizes_contradict(declared.shape, found.shape)


def _sizes_contradict(declared: Shape, found: Shape) -> bool:
    sizes: dict[str, Dim] = {}
    for dim, size in zip(declared, found, strict=True):
        if isinstance(dim, int) and isinstance(size, int) and dim != size:
            return True
        if isinstance(dim, str) and not is_unknown(size) and sizes.setdefault(dim, size) != size:
            return True  # one name for axes of two sizes
    return False
