"""Products of a transposed matrix and a vector, written as products of matrices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, helper

from blockdsl.graph.model import Graph

_FIRST_OF_AXES_INPUT = 13


def spell_out_transposed_products(graph: Graph) -> None:
    """Write `Transpose(a) @ v` for a vector v as a product with a matrix of one column.

    ONNX Runtime's MatmulTransposeFusion (1.19 to 1.32) computes the product with the vector wrong;
    the training engine and other bindings cannot leave it out.
    """
    nodes = list(graph.proto.graph.node)
    if any(_is_transposed_product(graph, node) for node in nodes):
        graph.replace_nodes([part for node in nodes for part in _parts(graph, node)])


def _is_transposed_product(graph: Graph, node: NodeProto) -> bool:
    if node.op_type != "MatMul" or node.domain not in ("", "ai.onnx"):
        return False
    producer = graph.producer(node.input[0])
    if producer is None or producer.op_type != "Transpose":
        return False
    shape = graph.type_of(node.input[1]).shape
    return shape is not None and len(shape) == 1


def _parts(graph: Graph, node: NodeProto) -> Iterator[NodeProto]:
    if not _is_transposed_product(graph, node):
        yield node
        return
    matrix, vector = node.input
    column, product = (graph.names.unique(f"{node.name}/{name}") for name in ("column", "product"))
    last_axis = len(graph.type_of(node.output[0]).shape or ())
    yield helper.make_node("Reshape", [vector, graph.add_constant(np.array([-1, 1]))], [column])
    yield helper.make_node("MatMul", [matrix, column], [product], name=node.name)
    if graph.opset() < _FIRST_OF_AXES_INPUT:
        yield helper.make_node("Squeeze", [product], [node.output[0]], axes=[last_axis])
    else:
        axes = graph.add_constant(np.array([last_axis]))
        yield helper.make_node("Squeeze", [product, axes], [node.output[0]])
