"""Operators by what they are made of: Python functions that say the same in other operators.

What a runtime's optimiser fused is differentiated by taking it apart again. A composite takes the
inputs of an operator and, keyword-only, its attributes, and returns its outputs::

    @composite("FusedGemm", domain=MICROSOFT)
    def fused_gemm(a, b, c, *, alpha=1.0, beta=1.0, activation, ...):
        '''y = f(alpha a' b' + beta c)'''
        ...

Inputs that are left out are None. Outputs that nobody asked for are removed; one that the
composite does not compute is None. A composite that asks for `declared`, a keyword, gets what the
model says of the operator's outputs: their types, or None. One with `until` is for an older form of
an operator, which its rule does not know.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from onnx import NodeProto, helper

from blockdsl.errors import GradientError
from blockdsl.graph import activate
from blockdsl.graph.control import close
from blockdsl.graph.microsoft import newest
from blockdsl.graph.model import Graph
from blockdsl.graph.schema import operator

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Composite:
    """What an operator is made of."""

    function: Callable[..., Any]
    inputs: int
    attributes: frozenset[str]
    sees_declared: bool
    until: int | None
    """The last opset of the form that it is of, if that is an older one."""

    @property
    def formula(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.function) or "").split("\n")[0]


DECLARED = "declared"
"""The keyword of a composite that depends on the types that the model gives its outputs."""

COMPOSITES: dict[tuple[str, str], Composite] = {}
"""(domain, operator) -> composite."""


def composite(
    *op_types: str, domain: str = "", until: int | None = None
) -> Callable[[Function], Function]:
    """Register what an operator, or several that share it, is made of.

    Args:
        *op_types: The operators.
        domain: Their domain.
        until: The last opset of the form that is meant, if newer opsets have another.

    Returns:
        A decorator that returns the function unchanged.

    Raises:
        GradientError: The signature does not fit what is known of the operator.
    """

    def register(function: Function) -> Function:
        for op_type in op_types:
            COMPOSITES[domain, op_type] = _checked(op_type, domain, function, until)
        return function

    return register


def _checked(
    op_type: str, domain: str, function: Callable[..., Any], until: int | None
) -> Composite:
    parameters = list(inspect.signature(function).parameters.values())
    given = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    keywords = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    attributes = frozenset(keywords - {DECLARED})
    form = newest(op_type, domain) if until is None else operator(op_type, until, domain)
    variadic = sum(p.kind is p.VAR_POSITIONAL for p in parameters)
    fits = form is None or (
        len(given) + variadic == len(form.inputs) and attributes == {*form.attributes}
    )
    if form is not None and not fits:
        raise GradientError(
            f"The composite of {form} takes ({', '.join(given)}; {', '.join(sorted(attributes))}), "
            f"and the operator has ({', '.join(form.input_names)}; "
            f"{', '.join(sorted(form.attributes))})."
        )
    return Composite(function, len(given), attributes, DECLARED in keywords, until)


def is_older_form(graph: Graph, node: NodeProto) -> bool:
    """Whether a node is of a form that the rule of its operator does not know."""
    found = COMPOSITES.get((node.domain, node.op_type))
    return found is not None and found.until is not None and graph.opset(node.domain) <= found.until


def taken_apart(graph: Graph, node: NodeProto) -> list[NodeProto] | None:
    """The nodes that a node is made of, under the names of its outputs; `None` if it is none.

    Raises:
        GradientError: The node has an attribute or an output that the composite does not know.
    """
    found = COMPOSITES.get((node.domain, node.op_type))
    if found is None or (found.until is not None and not is_older_form(graph, node)):
        return None
    attributes = {a.name: _value(helper.get_attribute_value(a)) for a in node.attribute}
    unknown = sorted(attributes.keys() - found.attributes)
    if unknown:
        raise GradientError(f"{_shown(node)} has the attribute {unknown[0]!r}, which is not known.")
    if found.sees_declared:
        known = [graph.type_of(o) if graph.is_tensor(o) else None for o in node.output]
        attributes[DECLARED] = known
    scope = graph.scope(node.name or node.op_type)
    with graph.names.root(), scope, graph.body("parts") as child, activate(child):
        inputs = [child.value(name) if name else None for name in node.input]
        inputs += [None] * (found.inputs - len(inputs))
        made = found.function(*inputs, **attributes)
        outputs = [*made] if isinstance(made, tuple) else [made]
        outputs += [None] * (len(node.output) - len(outputs))
        pairs = [(v, name) for v, name in zip(outputs, node.output, strict=False) if name]
        for value, name in pairs:
            if value is None:
                raise GradientError(f"{_shown(node)} returns {name!r}, which has no gradient.")
        close(child, [value for value, _ in pairs])
    _adopt(graph, child)
    own = [info.name for info in child.proto.graph.output]
    child.rename(dict(zip(own, (name for _, name in pairs), strict=True)))
    return list(child.proto.graph.node)


def _adopt(graph: Graph, child: Graph) -> None:
    """Take over the constants of a body, and what is known of its tensors."""
    graph.proto.graph.initializer.extend(child.proto.graph.initializer)
    graph.sync()
    for node in child.proto.graph.node:
        for output in filter(None, node.output):
            if child.is_tensor(output):
                graph.annotate(output, child.type_of(output))


def _value(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _shown(node: NodeProto) -> str:
    return f"{node.domain}::{node.op_type} (node {node.name!r})"
