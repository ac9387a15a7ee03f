"""Calls of functions: `FunctionProto`s become functions of the model that is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, FunctionProto, NodeProto, helper

from blockdsl.errors import OpError, near
from blockdsl.graph import schema
from blockdsl.graph.context import current
from blockdsl.graph.model import Graph
from blockdsl.graph.op import refuse_names
from blockdsl.graph.value import Value
from blockdsl.graph.walk import all_nodes

Key = tuple[str, str, str]


def call(
    functions: Sequence[FunctionProto], inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> Any:
    """Append a call of a function to the graph that is open.

    Args:
        functions: The function and those that it calls.
        inputs: Its inputs: tensors, numbers or arrays; None leaves an optional one out.
        attributes: Its attributes.

    Returns:
        Its output; a tuple if there are several.

    Raises:
        OpError: It does not take these inputs or attributes, or its operators mean something else
            in the model's opset.
        GraphError: The types or shapes of the inputs do not fit.
    """
    graph = current()
    function = add_functions(graph, functions)
    _check_arguments(function, inputs, attributes)
    name = graph.names.unique(function.name)
    count = len(function.output)
    node = NodeProto(
        op_type=function.name, domain=function.domain, overload=function.overload, name=name
    )
    node.input.extend(_to_names(graph, inputs))
    node.output.extend([name] if count == 1 else [f"{name}.{output}" for output in function.output])
    for key, value in attributes.items():
        node.attribute.append(_attribute(function, key, value))
    graph.sync()
    graph.proto.graph.node.append(node)
    graph.sync()
    results = [graph.value(output) for output in node.output]
    return results[0] if count == 1 else tuple(results)


def add_functions(graph: Graph, functions: Sequence[FunctionProto]) -> FunctionProto:
    """Add functions to a model, under other names where it has others of theirs.

    Args:
        graph: The graph that is open: the model, or a body in it.
        functions: The first one, and those that it calls.

    Returns:
        The first one as it is in the model.

    Raises:
        OpError: An operator means something else in the model's opset than in a function's.
    """
    model = graph.scopes[0].proto
    own = {_key(f): f for f in model.functions}
    copies = [_in_opset_of(graph, function) for function in functions]
    renamed: dict[Key, Key] = {}
    for copy in copies:
        key = _key(copy)
        number = 0
        while key in own and not _same(own[key], copy):
            number += 1
            key = (copy.domain, f"{copy.name}_{number}", copy.overload)
        renamed[_key(copy)] = key
    for copy in copies:
        copy.name = renamed[_key(copy)][1]
        for node in all_nodes(copy.node):
            called = (node.domain, node.op_type, node.overload)
            node.op_type = renamed.get(called, called)[1]
        if _key(copy) not in own:
            model.functions.append(copy)
        for imported in (*copy.opset_import, helper.make_opsetid(copy.domain, 1)):
            graph.require_opset(imported.domain, imported.version)
    return copies[0]


def _key(function: FunctionProto) -> Key:
    return function.domain, function.name, function.overload


def _same(a: FunctionProto, b: FunctionProto) -> bool:
    """Whether two functions are equal but for their names."""
    twin = FunctionProto()
    twin.CopyFrom(b)
    twin.name = a.name
    return a == twin


def _in_opset_of(graph: Graph, function: FunctionProto) -> FunctionProto:
    """A copy of a function that imports the opset of the model, in which it means the same."""
    copy = FunctionProto()
    copy.CopyFrom(function)
    for imported in copy.opset_import:
        domain = "" if imported.domain == "ai.onnx" else imported.domain
        theirs, ours = imported.version, graph.opset(domain)
        if not ours or ours == theirs:
            continue
        for node in all_nodes(copy.node):
            if node.domain in (domain, imported.domain) and not _alike(node, domain, theirs, ours):
                raise OpError(
                    f"The function {function.name!r} is written for opset {theirs}, in which "
                    f"{node.op_type} is not the same as in the model's opset {ours}. Open the "
                    f"model with empty_base(opset_version={theirs}), or write the function for "
                    f"opset {ours}: @script(default_opset=onnxscript.opset{ours})."
                )
        imported.version = ours
    return copy


def _alike(node: NodeProto, domain: str, theirs: int, ours: int) -> bool:
    """Whether a node means the same in two opsets, as far as its inputs and attributes tell."""
    a, b = (schema.operator(node.op_type, version, domain) for version in (theirs, ours))
    if a is None or b is None or a.version == b.version:
        return (a is None) == (b is None)
    count, given = len(node.input), {attribute.name for attribute in node.attribute}
    left = (set(a.attributes) & set(b.attributes)) - given
    return (
        a.input_names[:count] == b.input_names[:count]
        and given <= set(b.attributes)
        and all(a.defaults.get(name) == b.defaults.get(name) for name in left)
    )


def _check_arguments(
    function: FunctionProto, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> None:
    known = [*function.attribute, *(a.name for a in function.attribute_proto)]
    for name in attributes:
        if name not in known:
            raise OpError(f"{function.name} takes no attribute {name!r}. {near(name, known)}")
    missing = [name for name in function.attribute if name not in attributes]
    if missing or len(inputs) > len(function.input):
        needed = f" and the attributes {', '.join(missing)}" if missing else ""
        raise OpError(
            f"{function.name} needs up to {len(function.input)} inputs ("
            f"{', '.join(function.input)}){needed}, got {len(inputs)} inputs."
        )


def _to_names(graph: Graph, inputs: Sequence[Any]) -> list[str]:
    """The names of the inputs; numbers become constants, floats of the type of the tensors."""
    given = [graph.value(x) for x in inputs if isinstance(x, str) and x in graph]
    floats = [x.dtype for x in given if graph.is_tensor(x) and x.type.is_float]
    names = []
    for x in inputs:
        if x is None:
            names.append("")
        elif isinstance(x, str):
            if x not in graph:
                raise graph.unknown(x, "A function")
            names.append(str(x))
        else:
            names.append(str(_constant(graph, x, floats)))
    while names and not names[-1]:
        names.pop()
    return names


def _constant(graph: Graph, x: Any, floats: Sequence[np.dtype]) -> Value:
    array = np.asarray(x)
    refuse_names(graph, x, array)
    if array.dtype.kind in "OSU":
        raise OpError(f"A tensor, a number or an array is needed here, not {x!r}.")
    if array.dtype.kind == "f" and not isinstance(x, np.ndarray | np.generic):
        array = array.astype(floats[0] if floats else np.float32)
    return graph.add_constant(array)


def _attribute(function: FunctionProto, name: str, value: Any) -> AttributeProto:
    """An attribute of the kind that the function's nodes, or its default, have."""
    kinds = {a.name: a.type for a in function.attribute_proto}
    for node in all_nodes(function.node):
        kinds |= {a.ref_attr_name: a.type for a in node.attribute if a.ref_attr_name}
    kind = kinds.get(name)
    try:
        if kind == AttributeProto.FLOAT:
            value = float(value)
        return helper.make_attribute(name, value, attr_type=kind or None)
    except (TypeError, ValueError) as error:
        shown = AttributeProto.AttributeType.Name(kind) if kind else "another kind"
        raise OpError(f"{function.name} takes {shown} for {name!r}, not {value!r}.") from error
