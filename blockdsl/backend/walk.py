"""Questions about the nodes of artifacts, and changes to their lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnx import FunctionProto, ModelProto, NodeProto

from blockdsl.graph.schema import MICROSOFT
from blockdsl.graph.walk import all_nodes, reads


def is_accumulator(node: NodeProto) -> bool:
    """Whether a node adds a gradient to a buffer, or writes a statistic."""
    return node.op_type == "InPlaceAccumulatorV2" and node.domain == MICROSOFT


def ancestors(nodes: Sequence[NodeProto], names: Iterable[str]) -> set[int]:
    """The indices of the nodes, which are in order, that some tensors depend on."""
    wanted, found = set(names), set()
    for index in reversed(range(len(nodes))):
        if not wanted.isdisjoint(filter(None, nodes[index].output)):
            found.add(index)
            wanted.update(reads(nodes[index]))
    return found


def called_functions(model: ModelProto, nodes: Sequence[NodeProto]) -> list[FunctionProto]:
    """The model's functions that the nodes call, directly or through other functions."""
    functions = {(f.domain, f.name): f for f in model.functions}
    called: set[tuple[str, str]] = set()
    pending = list(nodes)
    while pending:
        for node in all_nodes([pending.pop()]):
            key = (node.domain, node.op_type)
            if key in functions and key not in called:
                called.add(key)
                pending.extend(functions[key].node)
    return [function for key, function in functions.items() if key in called]
