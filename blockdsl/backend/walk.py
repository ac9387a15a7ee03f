"""Questions about nodes that have subgraphs and call functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node's attributes: the branches of an If, the body of a Loop."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes and those of their subgraphs, at any depth."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


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
