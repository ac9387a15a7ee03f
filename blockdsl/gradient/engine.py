"""Reverse-mode differentiation of a graph.

The engine walks the nodes between what is differentiated and what it is differentiated by, calls
the rule of each, undoes broadcasts, sums the contributions of every use, and removes what no
gradient needs.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from onnx import NodeProto

from blockdsl.errors import BlockWarning, GradientError, UnknownNameError, near
from blockdsl.gradient import node as forward
from blockdsl.gradient.composites import is_older_form
from blockdsl.gradient.draws import keep_draws
from blockdsl.gradient.functions import expanded
from blockdsl.gradient.joining import added
from blockdsl.gradient.registry import NO_GRADIENT, REPLACED, WANTED, Rule, rule_of
from blockdsl.gradient.replacing import is_singular, note_replaced
from blockdsl.gradient.sequences import SequenceCotangent, holds_floats
from blockdsl.graph import activate, op
from blockdsl.graph.model import Graph
from blockdsl.graph.portable import equal, where
from blockdsl.graph.shapes import ones_like, reshape_like, sum_to, typed_as, zeros_like
from blockdsl.graph.value import Value
from blockdsl.graph.walk import inputs_of


def build_gradients(
    graph: Graph, of: str, wrt: Sequence[str], seed: str | None = None
) -> dict[str, Value]:
    """Append the gradient of a scalar to a graph.

    Args:
        graph: The graph; function calls on the way are replaced by their bodies.
        of: The tensor to differentiate, of one element unless a seed is given.
        wrt: The tensors to differentiate by: parameters, inputs or intermediate ones.
        seed: The cotangent of `of`, of its type and shape; one by default.

    Returns:
        For every name in `wrt` its gradient, a tensor named `<name>_grad` (`<name>_grad_1` if there
        is one of that name already: gradients can be differentiated in turn).

    Raises:
        UnknownNameError: There is no such tensor.
        GradientError: `of` is not a floating-point scalar, a name is not a floating-point tensor,
            or an operator on the way has no gradient.
    """
    graph.sync()
    with activate(graph):
        _check(graph, of, wrt, seed)
        # Before IR version 4 the constants of a gradient would have to be inputs.
        graph.proto.ir_version = max(graph.proto.ir_version, 4)
        for name in wrt:  # rules for constant exponents and the like are not for these
            graph.make_variable(name)
        _expand_functions(graph, [of], wrt)
        path = _path(graph, [of], wrt)
        if keep_draws(graph, path):
            path = _path(graph, [of], wrt)
        start = len(graph.proto.graph.node)
        _explain_blocked(graph, of, wrt, path)
        with graph.names.root(), graph.scope("grad"):
            first = graph.value(seed) if seed else ones_like(graph.value(of))
            found = _propagate(graph, path, {of: first}, wrt)
            gradients = [found[n] if n in found else _unused(graph, n, of) for n in wrt]
        return _finish(graph, start, wrt, gradients)


def pull_back(graph: Graph, cotangents: Mapping[str, Any], wrt: Sequence[str]) -> list[Any]:
    """Carry cotangents of several tensors back to others: for rules that build bodies of loops.

    Args:
        graph: The graph; it is the current one.
        cotangents: The cotangent of each tensor to start from.
        wrt: The tensors, or sequences, to end at; what makes one of them is not differentiated.

    Returns:
        The cotangent of each of these, zeros where nothing flows.
    """
    starts = list(cotangents)
    _expand_functions(graph, starts, wrt)
    made = set(wrt)
    path = [n for n in _path(graph, starts, wrt) if made.isdisjoint(n.output)]
    found = _propagate(graph, path, dict(cotangents), wrt)
    return [found[name] if name in found else _zero(graph.value(name)) for name in wrt]


def _zero(like: Value) -> Any:
    return zeros_like(like) if like.graph.is_tensor(like) else SequenceCotangent()


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
    _check(graph, of, (), None)
    used = {name for node in _path(graph, [of], names) for name in inputs_of(node)} | {of}
    return [name for name in names if name in used]


def _check(graph: Graph, of: str, wrt: Sequence[str], seed: str | None) -> None:
    for name in (of, *wrt):
        if name not in graph:
            known = [*graph.parameters, *graph.user_inputs(), *graph.initializer_names()]
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


def _path(graph: Graph, of: Sequence[str], wrt: Sequence[str]) -> list[NodeProto]:
    """The nodes that lie between `wrt` and `of`, in order."""
    reached = set(wrt)
    touched = []
    for node in graph.proto.graph.node:
        if not reached.isdisjoint(inputs_of(node)) and not _stops(node):
            reached.update(o for o in node.output if o and _carries(graph, o))
            touched.append(node)
    needed, path = set(of), []
    for node in reversed(touched):
        if any(output in needed for output in node.output):
            needed.update(name for name in inputs_of(node) if name in reached)
            path.append(node)
    return path[::-1]


def _stops(node: NodeProto) -> bool:
    return (_domain(node), node.op_type) in NO_GRADIENT


def _carries(graph: Graph, name: str) -> bool:
    """Whether a gradient can flow through a value.

    It can through a float tensor, something that is not a tensor, or integers that stand for
    floats.
    """
    if not graph.is_tensor(name):
        return not graph.is_sequence(name) or holds_floats(graph, name)
    if graph.type_of(name).is_float:
        return True
    node = graph.producer(name)
    rule = None if node is None else rule_of(node.op_type, _domain(node))
    return rule is not None and rule.straight_through


def _domain(node: NodeProto) -> str:
    return "" if node.domain == "ai.onnx" else node.domain


def _expand_functions(graph: Graph, of: Sequence[str], wrt: Sequence[str]) -> None:
    """Replace calls on the path that have no rule by their bodies, until none is left.

    An `If` whose condition is known is replaced, too: only the branch that it takes need fit.
    """
    while True:
        bodies: dict[str, list[NodeProto]] = {}
        for node in _path(graph, of, wrt):
            if (
                rule_of(node.op_type, _domain(node)) is None
                or graph.branch_of(node) is not None
                or is_older_form(graph, node)
            ):
                body = expanded(graph, node)
                if body is None:
                    raise GradientError(_no_rule(node))
                bodies[_first_output(node)] = body
        if not bodies:
            return
        graph.replace_nodes(
            [
                inner
                for node in graph.proto.graph.node
                for inner in bodies.get(_first_output(node), [node])
            ]
        )


def _first_output(node: NodeProto) -> str:
    return next(filter(None, node.output), "")


def _no_rule(node: NodeProto) -> str:
    shown = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    return (
        f"There is no gradient rule for {shown} (node {node.name!r}), and it is no function that "
        f"could be differentiated instead. Freeze the parameters before it, or write a rule with "
        f"@blockdsl.gradient.vjp({node.op_type!r}, domain={node.domain!r})."
    )


def _explain_blocked(graph: Graph, of: str, wrt: Sequence[str], path: Sequence[NodeProto]) -> None:
    """An error for what reaches the loss only through an operator without a derivative."""
    on_path = {name for node in path for name in inputs_of(node)} | {of}
    blocked = [name for name in wrt if name not in on_path]
    if not blocked:
        return
    loss_needs = _ancestors(graph, of)
    for name in blocked:
        if name in loss_needs:
            node = _first_stop(graph, name, loss_needs)
            if node is not None:
                reason = NO_GRADIENT[_domain(node), node.op_type]
                raise GradientError(
                    f"{str(name)!r} reaches the loss only through {node.op_type} (node "
                    f"{node.name!r}), which has no derivative: {reason}. Freeze it."
                )


def _ancestors(graph: Graph, of: str) -> set[str]:
    needed = {of}
    for node in reversed(graph.proto.graph.node):
        if any(output in needed for output in node.output):
            needed.update(inputs_of(node))
    return needed


def _first_stop(graph: Graph, name: str, needed: set[str]) -> NodeProto | None:
    reached = {name}
    nodes: Iterable[NodeProto] = graph.proto.graph.node
    for node in nodes:
        if not reached.isdisjoint(inputs_of(node)) and any(o in needed for o in node.output):
            if _stops(node):
                return node
            reached.update(o for o in node.output if o and _carries(graph, o))
    return None


def _unused(graph: Graph, name: str, of: str) -> Value:
    warnings.warn(
        f"{str(name)!r} does not influence {str(of)!r}: its gradient is zero.",
        BlockWarning,
        stacklevel=4,
    )
    return zeros_like(graph.value(name))


def _propagate(
    graph: Graph, path: Sequence[NodeProto], table: dict[str, Value], wrt: Sequence[str]
) -> Mapping[str, Value]:
    """Carry cotangents from the end of the path to its beginning."""
    wanted = frozenset(wrt).union(*(node.output for node in path))
    replaced: set[str] = set()
    for node in reversed(path):
        rule = rule_of(node.op_type, _domain(node))
        assert rule is not None
        if any(output in table for output in node.output):
            with graph.scope(node.name or node.op_type):
                _apply(graph, node, rule, table, wanted, replaced)
        note_replaced(node, rule, replaced)
    return table


def _apply(
    graph: Graph,
    node: NodeProto,
    rule: Rule,
    table: dict[str, Value],
    wanted: frozenset[str],
    replaced: Collection[str],
) -> None:
    """Call the rule of a node and add what it returns to the cotangents of the inputs."""
    form = graph.operator_of(node)
    inputs = forward.arguments(graph, node, form)
    padded = [*inputs, *[None] * (rule.inputs - len(inputs))]
    outputs = forward.Outputs(graph, node, rule)
    cotangents = forward.Cotangents(outputs, node, table)
    named = forward.attributes(graph, node, form, rule.attributes)
    if rule.sees_bodies:
        named[WANTED] = wanted
    if rule.sees_replaced:
        named[REPLACED] = node.output[0] in replaced
    returned = rule.function(
        cotangents if rule.several_outputs else cotangents[0],
        outputs if rule.several_outputs else outputs[0],
        *padded,
        **named,
    )
    results = list(returned) if isinstance(returned, tuple | list) else [returned]
    captured = results.pop() if rule.sees_bodies else {}
    if node.output[0] in replaced and is_singular(rule, inputs):
        nothing = equal(cotangents[0], 0)
        results = [None if d is None else where(nothing, 0, d) for d in results]
    if len(results) != len(padded):
        raise GradientError(
            f"The rule of {node.op_type} returned {len(results)} cotangents for {len(padded)} "
            f"inputs: return one for each, None where there is none."
        )
    pairs = [*zip(padded, results, strict=True)]
    pairs += [(graph.value(name), cotangent) for name, cotangent in captured.items()]
    for primal, cotangent in pairs:
        if primal in wanted and cotangent is not None and _carries(graph, primal):
            cotangent = _fitted(graph, cotangent, primal, rule)
            table[primal] = added(table[primal], cotangent) if primal in table else cotangent


def _fitted(graph: Graph, cotangent: Value, primal: Value, rule: Rule) -> Value:
    """A cotangent in the shape of its primal: broadcasts undone, and what is known of both."""
    if not graph.is_tensor(primal):
        return cotangent
    wanted, found = primal.type, cotangent.type
    if wanted.shape is None:
        raise GradientError(
            f"The rank of {str(primal)!r} is not known, and its gradient needs it. Give it a "
            f"value_info with a shape (symbolic dimensions are fine)."
        )
    if found.shape is not None and len(found.shape) < len(wanted.shape):
        return reshape_like(cotangent, primal)
    if rule.broadcast or (found.shape is not None and len(found.shape) > len(wanted.shape)):
        cotangent = sum_to(cotangent, primal)
    return typed_as(cotangent, primal)


def _finish(
    graph: Graph, start: int, wrt: Sequence[str], gradients: Sequence[Value]
) -> dict[str, Value]:
    """Remove what no gradient needs and name the gradients after what they belong to."""
    outputs = [o.name for o in graph.proto.graph.output]
    graph.prune(start, [*gradients, *outputs])
    nodes = graph.proto.graph.node[start:]
    uses = [name for node in nodes for name in inputs_of(node)]
    uses += [*map(str, gradients), *outputs]
    counts: dict[str, int] = {}
    for name in uses:
        counts[name] = counts.get(name, 0) + 1
    own = {output: node for node in nodes for output in node.output}
    named = {}
    for name, gradient in zip(wrt, gradients, strict=True):
        with graph.names.root():
            target = graph.names.unique(f"{name}_grad")
        node = own.get(gradient)
        if node is not None and counts[gradient] == 1:
            named[str(name)] = graph.rename_output(node, list(node.output).index(gradient), target)
        else:
            value = op.Identity(gradient)
            producer = graph.producer(value)
            assert producer is not None
            named[str(name)] = graph.rename_output(producer, 0, target)
    return named
