"""A forward node as a gradient rule sees it: whatever the opset, in the form of the newest one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, helper

from blockdsl.errors import GradientError
from blockdsl.gradient.draws import returned
from blockdsl.gradient.registry import Rule
from blockdsl.graph.microsoft import newest
from blockdsl.graph.model import Graph
from blockdsl.graph.older_forms import implied_attribute
from blockdsl.graph.portable import widened
from blockdsl.graph.schema import Operator
from blockdsl.graph.shapes import zeros_like
from blockdsl.graph.value import Value
from blockdsl.graph.walk import attributes_of


class Outputs(Sequence[Value]):
    """The outputs of a node; asking for an optional one declares it on the node."""

    def __init__(self, graph: Graph, node: NodeProto, rule: Rule) -> None:
        self._graph, self._node, self._wide = graph, node, rule.wide
        form = newest(rule.op_type, rule.domain)
        self._count = len(form.outputs) if form and not form.outputs[-1].variadic else 0

    def __getitem__(self, index: Any) -> Any:
        if index >= len(self):
            raise IndexError(f"{self._node.op_type} has {len(self)} outputs, none at {index}.")
        output = self._graph.declare_output(self._node, index)
        return widened(output) if self._wide else output

    def __len__(self) -> int:
        return max(self._count, len(self._node.output))

    def drawn(self, body: GraphProto) -> dict[str, Value]:
        """What a body of the node drew in the forward pass, by the name that it has in the body."""
        return {name: self[index] for name, index in returned(self._node, body)}

    def declared(self, index: int) -> bool:
        """Whether the forward model itself has this output."""
        return index < len(self._node.output) and bool(self._node.output[index])


class Cotangents(Sequence[Value]):
    """The cotangents of the outputs of a node; zeros, made when asked for, where none flows."""

    def __init__(
        self, outputs: Outputs, node: NodeProto, rule: Rule, table: Mapping[str, Value]
    ) -> None:
        self._outputs, self._node, self._table = outputs, node, table
        self._wide = rule.wide

    def __getitem__(self, index: Any) -> Any:
        if not self.flows(index):
            return self._zero(index)
        cotangent = self._table[self._node.output[index]]
        return widened(cotangent) if self._wide else cotangent

    def __len__(self) -> int:
        return len(self._outputs)

    def flows(self, index: int) -> bool:
        """Whether anything flows back into this output."""
        return self._outputs.declared(index) and self._node.output[index] in self._table

    def _zero(self, index: int) -> Value:
        return zeros_like(self._outputs[index])


def arguments(graph: Graph, node: NodeProto, form: Operator | None) -> list[Value | None]:
    """The inputs of a node in the order of the newest schema, `None` for one left out.

    What the node's own opset has as an attribute arrives as a constant.
    """
    given: list[Value | None] = [graph.value(name) if name else None for name in node.input]
    latest = newest(node.op_type, form.domain) if form else None
    if form is None or latest is None or latest.version == form.version:
        return given
    if latest.inputs and latest.inputs[-1].variadic:
        return given
    old, settings = form.input_names, _settings(node, form)
    found: list[Value | None] = []
    for index, name in enumerate(latest.input_names):
        if name in old:
            at = old.index(name)
            found.append(given[at] if at < len(given) else None)
        elif name in form.attributes:
            found.append(_as_constant(graph, given, settings.get(name)))
        elif index < len(old) and old[index] not in latest.input_names:
            found.append(given[index] if index < len(given) else None)
        else:
            found.append(None)
    return found


def attributes(
    graph: Graph, node: NodeProto, form: Operator | None, names: Sequence[str]
) -> dict[str, Any]:
    """The attributes that a rule asks for, with the defaults of the node's opset or function."""
    settings = _settings(node, form)
    function = graph.function_of(node) if form is None else None
    if function is not None:
        for attribute in attributes_of(node, function):
            settings[attribute.name] = helper.get_attribute_value(attribute)
    latest = newest(node.op_type, node.domain)
    for name in names:
        if name not in settings:
            default = latest.defaults.get(name) if latest else None
            known = form is not None and name in form.attributes
            settings[name] = None if known else implied_attribute(node, name, default)
    return {name: _text(settings[name]) for name in names}


def _settings(node: NodeProto, form: Operator | None) -> dict[str, Any]:
    defaults = form.defaults if form else {}
    return {**defaults, **{a.name: helper.get_attribute_value(a) for a in node.attribute}}


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [v.decode() for v in value]
    return value


def _as_constant(graph: Graph, given: list[Value | None], value: Any) -> Value | None:
    if value is None:
        return None
    array = np.asarray(value)
    if array.dtype.kind == "f":
        first = given[0]
        if first is None:
            raise GradientError("A floating-point attribute needs a first input to take its type.")
        with np.errstate(over="ignore"):  # no bound of Clip is an infinite one
            return graph.add_constant(array.astype(first.dtype))
    return graph.add_constant(array.astype(np.int64))
