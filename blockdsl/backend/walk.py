"""Questions about nodes that have subgraphs and call functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnx import FunctionProto, ModelProto, NodeProto

from blockdsl.graph.walk import all_nodes, subgraphs


def reads(node: NodeProto) -> Iterator[str]:
    """The tensors a node reads, those that its subgraphs take from the graph around it included.

    Names that belong to a subgraph alone are given too: they name nothing outside of it.
    """
    yield from node.input
    for graph in subgraphs(node):
        yield from (output.name for output in graph.output)
        for inner in graph.node:
            yield from reads(inner)


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
