"""Function bodies: what an operator without a rule of its own is made of.

A node whose operator is a function, of the model or of the ONNX schema, or a composite, is replaced
by its body, and the body is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from onnx import FunctionProto, GraphProto, NodeProto, helper

from blockdsl.gradient.composites import taken_apart
from blockdsl.graph.model import Graph
from blockdsl.graph.schema import Operator
from blockdsl.graph.value import Value
from blockdsl.graph.walk import all_nodes, attributes_of, bind_attributes, subgraphs


def expanded(graph: Graph, node: NodeProto) -> list[NodeProto] | None:
    """What a node is made of, under the names of its outputs.

    That is the branch of an `If` whose condition is known, the body of the model's own function,
    or what blockdsl says an operator is made of, or the function body that the schema gives.
    `None` if there is none of these.
    """
    branch = graph.branch_of(node)
    if branch is not None:
        bodies = {a.name: a.g for a in node.attribute}
        return _taken(graph, node, bodies[("then_branch", "else_branch")[branch]])
    function = graph.function_of(node)
    if function is None:
        parts = taken_apart(graph, node)
        if parts is not None:
            return parts
        form = graph.operator_of(node)
        if form is not None and form.schema is not None:
            function = _schema_body(graph, node, form)
    return None if function is None else inlined(graph, node, function)


def expand_calls(graph: Graph, operators: Collection[str]) -> None:
    """Replace calls of the model's functions by their bodies, as far as these use some operators.

    Calls in the bodies of `If`, `Loop` and `Scan` are replaced, too.

    Args:
        graph: The graph.
        operators: Operators of the default domain. What uses them through another function counts.
    """
    using: set[tuple[str, str]] = {("", name) for name in operators}
    found = -1
    while found != len(using):
        found = len(using)
        for function in graph.proto.functions:
            if any((node.domain, node.op_type) in using for node in all_nodes(function.node)):
                using.add((function.domain, function.name))
    using -= {("", name) for name in operators}

    def calls(node: NodeProto) -> bool:
        return (node.domain, node.op_type) in using

    while any(map(calls, graph.proto.graph.node)):
        graph.replace_nodes(
            [
                inner
                for node in graph.proto.graph.node
                for inner in ((expanded(graph, node) or [node]) if calls(node) else [node])
            ]
        )
    if any(map(calls, all_nodes(graph.proto.graph.node))):
        for node in all_nodes(graph.proto.graph.node):
            for body in subgraphs(node):
                inline_calls(graph, body, lambda f: (f.domain, f.name) in using)


def inline_calls(graph: Graph, body: GraphProto, chosen: Callable[[FunctionProto], bool]) -> None:
    """Put what functions are made of in the place of their calls in a body, not in its bodies.

    Args:
        graph: The graph.
        body: The body of an `If`, `Loop` or `Scan`.
        chosen: Says of which functions.
    """
    while True:
        calls = ((i, graph.function_of(child)) for i, child in enumerate(body.node))
        found = next(((i, f) for i, f in calls if f and chosen(f)), None)
        if found is None:
            return
        i, function = found
        nodes = [*body.node[:i], *inlined(graph, body.node[i], function), *body.node[i + 1 :]]
        copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del body.node[:]
        body.node.extend(copies)


def _schema_body(graph: Graph, node: NodeProto, form: Operator) -> FunctionProto | None:
    schema: Any = form.schema
    version = graph.opset(form.domain)
    if schema.has_function:
        fitting = [v for v in schema.function_opset_versions if v <= version]
        return _parse(schema.get_function_with_opset_version(max(fitting))) if fitting else None
    if schema.has_context_dependent_function:
        fitting = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        if fitting:
            types = [graph.type_proto(i).SerializeToString() if i else b"" for i in node.input]
            return _parse(
                schema.get_context_dependent_function_with_opset_version(
                    max(fitting), node.SerializeToString(), types
                )
            )
    return None


def _parse(body: Any) -> FunctionProto | None:
    if not body:
        return None
    parsed: FunctionProto = FunctionProto.FromString(body) if isinstance(body, bytes) else body
    return parsed


def inlined(graph: Graph, node: NodeProto, function: FunctionProto) -> list[NodeProto]:
    """The nodes of a function's body in the place of a node that calls it."""
    names = dict(zip(function.input, [*node.input, *[""] * len(function.input)], strict=False))
    names |= {
        formal: actual
        for formal, actual in zip(function.output, node.output, strict=False)
        if actual
    }
    values = {a.name: a for a in attributes_of(node, function)}
    body = []
    with graph.names.root(), graph.scope(node.name or node.op_type):
        for inner in function.node:
            copy = NodeProto()
            copy.CopyFrom(inner)
            _rename(graph, copy, names)
            copy.name = graph.names.unique(inner.name or inner.op_type)
            bind_attributes(copy, values)
            body.append(copy)
    for imported in function.opset_import:
        graph.require_opset(imported.domain, imported.version)
    return body


def _taken(graph: Graph, node: NodeProto, branch: GraphProto) -> list[NodeProto]:
    """The nodes of a branch in the place of the `If` that takes it."""
    made = {output for inner in branch.node for output in inner.output if output}
    names: dict[str, str] = {}
    given = []
    for formal, actual in zip(branch.output, node.output, strict=True):
        if actual and formal.name in made and formal.name not in names:
            names[formal.name] = actual
        elif actual:  # what the branch reads of the scope around it, or gives twice
            given.append((formal.name, actual))
    weights = [helper.make_node("Constant", [], [t.name], value=t) for t in branch.initializer]
    with graph.names.root(), graph.scope(node.name or node.op_type):
        own = dict.fromkeys([t.name for t in branch.initializer] + sorted(made))
        names |= {name: graph.names.unique(name) for name in own if name not in names}
        body = [renamed(inner, names) for inner in (*weights, *branch.node)]
        for inner in body:
            inner.name = graph.names.unique(inner.name or inner.op_type)
        for name, actual in given:
            passed = helper.make_node("Identity", [names.get(name, name)], [actual])
            passed.name = graph.names.unique("Identity")
            body.append(passed)
    return body


def spliced(
    graph: Graph,
    body: GraphProto,
    inputs: Sequence[str],
    replace: Callable[[NodeProto, dict[str, str]], bool] | None = None,
) -> list[Value]:
    """Append a copy of a body to a graph.

    Args:
        graph: The graph; it sees what the body sees of the scope around it.
        body: The body of an `If`, `Loop` or `Scan`.
        inputs: What takes the place of the body's inputs.
        replace: Puts something else in the place of a node, if it returns true: it is given the
            names that tensors of the body have in the graph, and adds those of what it makes.

    Returns:
        The body's outputs in the graph.
    """
    names = dict(zip((v.name for v in body.input), inputs, strict=True))
    for tensor in body.initializer:
        names[tensor.name] = graph.names.unique(tensor.name)
        copied = graph.proto.graph.initializer.add()
        copied.CopyFrom(tensor)
        copied.name = names[tensor.name]
        if tensor.name in graph.constants_made:
            graph.constants_made.add(copied.name)
    own = {output for node in body.node for output in node.output if output}
    names |= {name: graph.names.unique(name) for name in own}
    for node in body.node:
        if replace is None or not replace(node, names):
            copy = renamed(node, names)
            copy.name = graph.names.unique(node.name or node.op_type)
            graph.proto.graph.node.append(copy)
    graph.sync()
    return [graph.value(names.get(output.name, output.name)) for output in body.output]


def renamed(node: NodeProto, names: Mapping[str, str]) -> NodeProto:
    """A copy of a node that reads and writes tensors under other names."""
    copy = NodeProto()
    copy.CopyFrom(node)
    _rename_known(copy, names)
    return copy


def _rename_known(node: NodeProto, names: Mapping[str, str]) -> None:
    for side in (node.input, node.output):
        for i, name in enumerate(side):
            side[i] = names.get(name, name)
    for body in subgraphs(node):
        _rename_outer(body, names)


def _rename(graph: Graph, node: NodeProto, names: dict[str, str]) -> None:
    """Rename what a function's node reads and writes; what has no name yet gets one."""
    for name in (*node.input, *node.output):
        if name and name not in names:
            names[name] = graph.names.unique(name)
    _rename_known(node, names)


def _rename_outer(body: GraphProto, names: Mapping[str, str]) -> None:
    """Rename what a subgraph reads of the scope around it; its own names stay."""
    own = {v.name for v in body.input} | {t.name for t in body.initializer}
    own |= {name for child in body.node for name in child.output}
    outer = {old: new for old, new in names.items() if old not in own}
    for child in body.node:
        child.input[:] = [outer.get(name, name) for name in child.input]
        for inner in subgraphs(child):
            _rename_outer(inner, outer)
    for output in body.output:
        output.name = outer.get(output.name, output.name)
