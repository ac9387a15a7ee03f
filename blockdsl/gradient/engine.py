"""Reverse-mode differentiation of a graph.

The engine walks the nodes between what is differentiated and what it is differentiated by, calls
the rule of each, undoes broadcasts, sums the contributions of every use, and removes what no
gradient needs.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from onnx import NodeProto

from blockdsl.errors import BlockWarning, GradientError
from blockdsl.gradient import node as forward
from blockdsl.gradient.composites import is_older_form
from blockdsl.gradient.draws import keep_draws
from blockdsl.gradient.functions import expanded
from blockdsl.gradient.joining import added
from blockdsl.gradient.paths import (
    carries,
    check,
    domain_of,
    explain_blocked,
    explain_hidden,
    path_between,
)
from blockdsl.gradient.registry import REPLACED, WANTED, Rule, rule_of
from blockdsl.gradient.replacing import is_singular, note_replaced
from blockdsl.gradient.sequences import SequenceCotangent
from blockdsl.graph import activate, op
from blockdsl.graph.model import Graph
from blockdsl.graph.portable import equal, where, widened
from blockdsl.graph.rewriting import Mark
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
        check(graph, of, wrt, seed)
        # Before IR version 4 the constants of a gradient would have to be inputs.
        model = graph.scopes[0].proto
        model.ir_version = max(model.ir_version, 4)
        graph.make_variables(wrt)  # rules for constant exponents and the like are not for these
        _expand_functions(graph, [of], wrt)
        path = path_between(graph, [of], wrt)
        changed = [keep_draws(scope, _own(scope, path)) for scope in graph.scopes]
        if any(changed):
            path = path_between(graph, [of], wrt)
        start = graph.mark()
        explain_hidden(graph, of, wrt)
        explain_blocked(graph, of, wrt, path)
        with graph.names.root(), graph.scope("grad"):
            first = ones_like(graph.value(of)) if seed is None else graph.value(seed)
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
    _expand_functions(graph, starts, wrt, [graph])
    made = set(wrt)
    path = [n for n in path_between(graph, starts, wrt, [graph]) if made.isdisjoint(n.output)]
    found = _propagate(graph, path, dict(cotangents), wrt)
    return [found[name] if name in found else _zero(graph.value(name)) for name in wrt]


def _zero(like: Value) -> Any:
    return zeros_like(like) if like.graph.is_tensor(like) else SequenceCotangent()


def _expand_functions(
    graph: Graph, of: Sequence[str], wrt: Sequence[str], scopes: Sequence[Graph] | None = None
) -> None:
    """Replace calls on the path that have no rule by their bodies, until none is left.

    An `If` whose condition is known is replaced, too: only the branch that it takes need fit.
    """
    scopes = scopes or graph.scopes
    while True:
        bodies: dict[str, list[NodeProto]] = {}
        for node in path_between(graph, of, wrt, scopes):
            if (
                rule_of(node.op_type, domain_of(node)) is None
                or graph.branch_of(node) is not None
                or is_older_form(graph, node)
            ):
                owner = next(s for s in scopes if _first_output(node) in s.own_producers)
                body = expanded(owner, node)
                if body is None:
                    raise GradientError(_no_rule(node))
                bodies[_first_output(node)] = body
        if not bodies:
            return
        for scope in scopes:
            if not bodies.keys().isdisjoint(scope.own_producers):
                scope.replace_nodes(
                    [
                        inner
                        for node in scope.proto.graph.node
                        for inner in bodies.get(_first_output(node), [node])
                    ]
                )


def _own(scope: Graph, path: Sequence[NodeProto]) -> list[NodeProto]:
    """The nodes of a path that are in this graph itself, not in one around it or in a body."""
    return [node for node in path if _first_output(node) in scope.own_producers]


def _first_output(node: NodeProto) -> str:
    return next(filter(None, node.output), "")


def _no_rule(node: NodeProto) -> str:
    shown = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    return (
        f"There is no gradient rule for {shown} (node {node.name!r}), and it is no function that "
        f"could be differentiated instead. Freeze the parameters before it, or write a rule with "
        f"@blockdsl.gradient.vjp({node.op_type!r}, domain={node.domain!r})."
    )


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
        rule = rule_of(node.op_type, domain_of(node))
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
    cotangents = forward.Cotangents(outputs, node, rule, table)
    named = forward.attributes(graph, node, form, rule.attributes)
    if rule.sees_bodies:
        named[WANTED] = wanted
    if rule.sees_replaced:
        named[REPLACED] = node.output[0] in replaced
    returned = rule.function(
        cotangents if rule.several_outputs else cotangents[0],
        outputs if rule.several_outputs else outputs[0],
        *(map(widened, padded) if rule.wide else padded),
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
        if primal in wanted and cotangent is not None and carries(graph, primal):
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
    return typed_as(cotangent.cast(primal.elem_type) if rule.wide else cotangent, primal)


def _finish(
    graph: Graph, start: Mark, wrt: Sequence[str], gradients: Sequence[Value]
) -> dict[str, Value]:
    """Remove what no gradient needs and name the gradients after what they belong to."""
    outputs = [o.name for o in graph.proto.graph.output]
    graph.prune(start, [*gradients, *outputs])
    nodes = graph.proto.graph.node[start.nodes :]
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
