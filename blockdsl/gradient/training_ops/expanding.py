"""Puts what training operators are made of in their place."""

from __future__ import annotations

from onnx import ModelProto, NodeProto

from blockdsl.errors import GradientError, GraphError
from blockdsl.gradient.composites import taken_apart
from blockdsl.gradient.training_ops.registry import BODIES, REFUSED
from blockdsl.graph.model import Graph
from blockdsl.graph.rewriting import Mark


def replace_training_operators(model: ModelProto) -> None:
    """Replace the operators that only onnxruntime-training has by plain ONNX, in linear time.

    The accumulators stay: what becomes of them is for the engine to say.

    Args:
        model: A training model of onnxruntime-training's making; it is changed.

    Raises:
        GradientError: An operator is known to have no plain form, or not with its attributes.
        GraphError: The model is not valid.
    """
    nodes = list(model.graph.node)
    if not any(_key(node) in BODIES or _key(node) in REFUSED for node in nodes):
        return
    outputs = [value.name for value in model.graph.output]
    del model.graph.node[:]
    graph = Graph(model)
    for node in nodes:
        for name in (node.name, *node.output):
            graph.names.take(name)
    for node in nodes:
        model.graph.node.extend(_parts(graph, node))
        graph.sync()
    graph.prune(Mark(), outputs)


def _parts(graph: Graph, node: NodeProto) -> list[NodeProto]:
    """What takes the place of a node: its body, or the node itself."""
    key = _key(node)
    shown = f"{key[0]}::{key[1]} (node {node.name!r})".removeprefix("::")
    if key in REFUSED:
        raise GradientError(f"{shown} has no plain form: {REFUSED[key]}.")
    if key not in BODIES or graph.function_of(node) is not None:
        return [node]
    try:
        parts = taken_apart(graph, node)
    except (GradientError, GraphError) as error:
        raise GradientError(f"{shown} has no plain form here. {error}") from error
    assert parts is not None
    return parts


def _key(node: NodeProto) -> tuple[str, str]:
    return "" if node.domain == "ai.onnx" else node.domain, node.op_type
