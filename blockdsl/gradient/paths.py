"""The nodes that a derivative goes through, and why it does not reach a tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onnx import NodeProto

from blockdsl.errors import GradientError, UnknownNameError, near
from blockdsl.gradient.registry import NO_GRADIENT, rule_of
from blockdsl.gradient.sequences import holds_floats
from blockdsl.graph.model import Graph
from blockdsl.graph.walk import inputs_of


def influences(graph: Graph, of: str, names: Sequence[str]) -> list[str]:
    """Those of some tensors by which a tensor can be differentiated.

    Args:
        graph: The graph.
        of: The tensor to differentiate.
        names: The tensors to differentiate by.

    Returns:
        The names from which a gradient can flow, in their order.

    Raises:
        UnknownNameError: There is no such tensor.
        GradientError: `of` is not a floating-point scalar.
    """
    check(graph, of, (), None)
    used = {name for node in path_between(graph, [of], names) for name in inputs_of(node)} | {of}
    return [name for name in names if name in used]


def check(graph: Graph, of: str, wrt: Sequence[str], seed: str | None) -> None:
    """Check that tensors exist, are floating-point, and that a gradient can start from one.

    Raises:
        UnknownNameError: There is no such tensor.
        GradientError: One is not floating-point, or there is no seed and `of` is no scalar.
    """
    for name in (of, *wrt):
        if name not in graph and graph.is_inside(name):
            raise graph.unknown(name, "A gradient")
        if name not in graph:
            known = [*graph.user_inputs(), *graph.initializer_names()]
            raise UnknownNameError(
                f"Node arg {name} is not found in the graph. {near(name, known)}"
            )
        if not graph.type_of(name).is_float:
            what = "the loss" if name == of else "a gradient"
            raise GradientError(
                f"{str(name)!r} has the type {graph.type_of(name)}: {what} needs a floating-point "
                f"tensor."
            )
    shape = graph.type_of(of).shape
    if seed is None and (shape is None or any(d != 1 for d in shape)):
        raise GradientError(
            f"The loss {str(of)!r} has the type {graph.type_of(of)}; a gradient starts from one "
            f"number. Reduce it, with .mean() or .sum(), or reduction='mean'."
        )


def _nodes(scopes: Iterable[Graph]) -> Iterator[NodeProto]:
    for scope in scopes:
        yield from scope.proto.graph.node


def path_between(
    graph: Graph, of: Sequence[str], wrt: Sequence[str], scopes: Sequence[Graph] | None = None
) -> list[NodeProto]:
    """The nodes that lie between `wrt` and `of`, in order.

    Args:
        graph: The graph.
        of: Where the path ends.
        wrt: Where it begins.
        scopes: Where the nodes are: in the graph and, if it is a body, in those around it.
    """
    reached, touched = _reached(graph, wrt, scopes or graph.scopes)
    needed, path = set(of), []
    for node in reversed(touched):
        if any(output in needed for output in node.output):
            needed.update(name for name in inputs_of(node) if name in reached)
            path.append(node)
    return path[::-1]


def _reached(
    graph: Graph, wrt: Sequence[str], scopes: Sequence[Graph], through_bodies: bool = False
) -> tuple[set[str], list[NodeProto]]:
    """The tensors that a derivative by `wrt` can reach, and the nodes that it goes through.

    Args:
        graph: The graph.
        wrt: The tensors to begin with.
        scopes: Where the nodes are.
        through_bodies: Whether it reaches the states and slices of open bodies, too, by what they
            start from.
    """
    reached, touched = set(wrt), []
    for scope in scopes:
        if through_bodies:
            reached.update(name for name, source in scope.sources.items() if source in reached)
        for node in scope.proto.graph.node:
            if not reached.isdisjoint(inputs_of(node)) and not stops(node):
                reached.update(o for o in node.output if o and carries(graph, o))
                touched.append(node)
    return reached, touched


def stops(node: NodeProto) -> bool:
    """Whether no derivative goes through a node."""
    return (domain_of(node), node.op_type) in NO_GRADIENT


def carries(graph: Graph, name: str) -> bool:
    """Whether a gradient can flow through a value.

    It can through a float tensor, something that is not a tensor, or integers that stand for
    floats.
    """
    if not graph.is_tensor(name):
        return not graph.is_sequence(name) or holds_floats(graph, name)
    if graph.type_of(name).is_float:
        return True
    node = graph.producer(name)
    rule = None if node is None else rule_of(node.op_type, domain_of(node))
    return rule is not None and rule.straight_through


def domain_of(node: NodeProto) -> str:
    """The domain of a node, "" for the default one."""
    return "" if node.domain == "ai.onnx" else node.domain


def explain_hidden(graph: Graph, of: str, wrt: Sequence[str]) -> None:
    """An error for what reaches the loss only by the earlier steps of the loop that is being built.

    A state, or a slice, is a variable of its own in the body: where it comes from is not seen.
    """
    if not any(scope.sources for scope in graph.scopes):
        return
    reached, _ = _reached(graph, wrt, graph.scopes, through_bodies=True)
    for scope in graph.scopes:
        for name, source in scope.sources.items():
            hidden = source in reached and name not in wrt and graph.is_tensor(name)
            if hidden and (name == of or path_between(graph, [of], [name])):
                raise GradientError(
                    f"{str(of)!r} depends on {str(name)!r}, a state or slice of the loop that is "
                    f"being built, which comes from {str(source)!r}: a gradient in the body does "
                    f"not go back through earlier steps, and would lack that part. Differentiate "
                    f"by {str(name)!r} itself, use {str(source)!r} in the body, or build the "
                    f"gradient after the loop, from what it returns."
                )


def explain_blocked(graph: Graph, of: str, wrt: Sequence[str], path: Sequence[NodeProto]) -> None:
    """An error for what reaches the loss only through an operator without a derivative."""
    on_path = {name for node in path for name in inputs_of(node)} | {of}
    blocked = [name for name in wrt if name not in on_path]
    if not blocked:
        return
    for name, node in blocking_nodes(graph, of, blocked).items():
        reason = NO_GRADIENT[domain_of(node), node.op_type]
        raise GradientError(
            f"{str(name)!r} reaches the loss only through {node.op_type} (node {node.name!r}), "
            f"which has no derivative: {reason}. Freeze it."
        )


def blocking_nodes(
    graph: Graph, of: str, names: Iterable[str], *, with_casts: bool = False
) -> dict[str, NodeProto]:
    """Return, for tensors that another depends on, the first node without a derivative between.

    Args:
        graph: The graph.
        of: The tensor that depends on them.
        names: The tensors.
        with_casts: Whether nodes count, too, whose outputs are integers or booleans.
    """
    needed = ancestors(graph, [of])
    found = {n: _first_stop(graph, n, needed, with_casts=with_casts) for n in names if n in needed}
    return {name: node for name, node in found.items() if node is not None}


def ancestors(graph: Graph, names: Iterable[str]) -> set[str]:
    """Return the tensors that some tensors depend on, in whatever way, and these themselves."""
    needed = set(names)
    for node in reversed([*_nodes(graph.scopes)]):
        if any(output in needed for output in node.output):
            needed.update(inputs_of(node))
    return needed


def _first_stop(graph: Graph, name: str, needed: set[str], *, with_casts: bool) -> NodeProto | None:
    reached = {name}
    for node in _nodes(graph.scopes):
        if not reached.isdisjoint(inputs_of(node)) and any(o in needed for o in node.output):
            carried = [o for o in node.output if o and carries(graph, o)]
            if stops(node) or (with_casts and needed.isdisjoint(carried)):
                return node
            reached.update(carried)
    return None
