"""Labels that the model computes are checked by the model itself."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from blockdsl.graph import op
from blockdsl.graph.class_labels import (
    class_count,
    ignored_label,
    is_class_loss,
    is_integer,
    source_of_labels,
)
from blockdsl.graph.context import activate
from blockdsl.graph.model import Graph
from blockdsl.graph.value import Value


def check_computed_labels(graph: Graph) -> None:
    """Make wrong labels of the graph's losses an error at run time.

    The operators of losses count a negative label from the end, or read memory that is not theirs.
    Labels that are fed are checked before the model runs; those that the graph computes, or whose
    classes it does not tell the number of, pass through an operator that refuses them.
    """
    producers = dict(graph.own_producers)
    inputs = {value.name for value in graph.proto.graph.input}
    nodes: list[NodeProto] = []
    changed = False
    for node in list(graph.proto.graph.node):
        if is_class_loss(node):
            source = source_of_labels(node.input[1], producers)
            fed = source in inputs and is_integer(graph.type_of(source))
            if not fed or class_count(graph.type_of(node.input[0])) is None:
                nodes += _check_labels(graph, node)
                changed = True
        nodes.append(node)
    if changed:
        graph.replace_nodes(nodes)


def declare_scores(graph: Graph) -> None:
    """Write the types of the losses' scores into the model, which tell the number of classes."""
    declared = {value.name for value in graph.proto.graph.value_info}
    for node in filter(is_class_loss, graph.proto.graph.node):
        name = node.input[0]
        if name not in declared and class_count(graph.type_of(name)) is not None:
            graph.proto.graph.value_info.append(
                helper.make_value_info(name, graph.type_proto(name))
            )


def _check_labels(graph: Graph, node: NodeProto) -> list[NodeProto]:
    """Let a loss read checked labels; return the nodes that check them."""
    first = len(graph.proto.graph.node)
    with activate(graph), graph.scope(f"{node.name}/labels"):
        scores, labels = map(graph.value, node.input[:2])
        node.input[1] = checked_labels(scores, labels, ignored_label(node))
    return list(graph.proto.graph.node)[first:]


def checked_labels(scores: Value, labels: Value, ignored: int | None) -> Value:
    """The labels, after an operator that fails where one is no class."""
    count = class_count(scores.type)
    index = labels.cast(np.int64)
    counts = None if ignored is None else ~index.equal(ignored)
    classes = op.Squeeze(op.Shape(scores)[1:2]) if count is None else np.array(count)
    index = op.Where(index < 0, classes, index)
    if counts is not None:
        index = op.Where(counts, index, np.array(0))
    checked: Value = op.Gather(op.Range(np.array(0), classes, np.array(1)), index)
    if counts is not None:
        checked = op.Where(counts, checked, np.array(ignored))
    return checked.cast(labels.elem_type)
