"""Parameters that a loss can be differentiated by, and operators that keep it from others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from onnx import NodeProto

from blockdsl.gradient.functions import expanded
from blockdsl.gradient.paths import (
    ancestors,
    blocking_nodes,
    check,
    domain_of,
    influences,
    path_between,
    stops,
)
from blockdsl.gradient.registry import rule_of
from blockdsl.graph.model import Graph
from blockdsl.graph.walk import all_nodes, inputs_of, subgraphs

_INTEGER_PRODUCTS = frozenset({"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"})


class Reach(NamedTuple):
    """The tensors that a derivative reaches.

    Attributes:
        reached: Those that it reaches.
        blocked: Those that the loss depends on through an operator without a gradient, and that
            operator's node.
    """

    reached: list[str]
    blocked: dict[str, NodeProto]


def reach(graph: Graph, of: str, names: Sequence[str]) -> Reach:
    """Return the tensors by which a tensor can be differentiated in full.

    Args:
        graph: The graph.
        of: The tensor to differentiate.
        names: The tensors to differentiate by.

    Raises:
        UnknownNameError: There is no such tensor.
        GradientError: `of` is not a floating-point scalar.
    """
    check(graph, of, (), None)
    blocked = before_integers(graph, of, names)
    for node in path_between(graph, [of], names):
        if not _has_gradient(graph, node):
            for name in _before(graph, node, names):
                blocked.setdefault(name, node)
    free = [name for name in names if name not in blocked]
    reached = influences(graph, of, free)
    lost = set(free).difference(reached)
    blocked |= blocking_nodes(graph, of, lost, with_casts=True)
    return Reach(reached, {name: blocked[name] for name in names if name in blocked})


def before_integers(graph: Graph, of: str, names: Iterable[str]) -> dict[str, NodeProto]:
    """Return the tensors that a quantised product is computed from, and the node of one.

    The scale that such a product is multiplied by has a derivative, the product has none: what is
    left of the gradient by anything before it is wrong.

    Args:
        graph: The graph.
        of: The tensor that is differentiated.
        names: The tensors to look at.
    """
    needed = ancestors(graph, [of])
    nodes = [
        node
        for scope in graph.scopes
        for node in scope.proto.graph.node
        if node.op_type in _INTEGER_PRODUCTS and not needed.isdisjoint(node.output)
    ]
    before = ancestors(graph, (name for node in nodes for name in node.input))
    return {name: nodes[0] for name in names if name in before} if nodes else {}


def _before(graph: Graph, node: NodeProto, names: Iterable[str]) -> set[str]:
    """Return those of some tensors that a node depends on by way of derivatives."""
    inputs = list(inputs_of(node))
    path = path_between(graph, inputs, list(names))
    return set(names) & set(inputs).union(*(inputs_of(other) for other in path))


def _has_gradient(graph: Graph, node: NodeProto) -> bool:
    """Whether a node has a rule or is made of nodes that have one, and so have its bodies."""
    inner = [child for body in subgraphs(node) for child in all_nodes(body.node)]
    if not all(_is_known(graph, child) for child in inner):
        return False
    if rule_of(node.op_type, domain_of(node)) is not None or stops(node):
        return True
    function = graph.function_of(node)
    if function is not None:
        return all(_is_known(graph, child) for child in all_nodes(function.node))
    return expanded(graph, node) is not None


def _is_known(graph: Graph, node: NodeProto) -> bool:
    """Whether a node of a body or function can be differentiated, as far as its operator tells."""
    if rule_of(node.op_type, domain_of(node)) is not None or graph.operator_of(node) is not None:
        return True
    function = graph.function_of(node)
    return function is not None and all(_is_known(graph, n) for n in all_nodes(function.node))
