"""Nodes and the graphs in them: what bodies hold, and read of the scope around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

WITH_BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""The operators whose bodies may read tensors of the scope around them."""


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node's attributes: the branches of an If, the body of a Loop."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes and those of their subgraphs, at any depth."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


def names_in(node: NodeProto) -> Iterator[str]:
    """The names of a node, of what it writes, and of all that is in its subgraphs."""
    for inner in all_nodes([node]):
        yield inner.name
        yield from inner.output
        for graph in subgraphs(inner):
            yield from (value.name for value in graph.input)
            yield from (tensor.name for tensor in graph.initializer)


def nodes_of(model: ModelProto) -> Iterator[NodeProto]:
    """The nodes of a model: those of its graph and functions, and of their subgraphs."""
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        yield from all_nodes(nodes)


def inputs_of(node: NodeProto) -> Iterable[str]:
    """What a node reads; for one with bodies, what these read of the scope around it too."""
    return reads(node) if node.op_type in WITH_BODIES else filter(None, node.input)


def reads(node: NodeProto) -> set[str]:
    """The tensors that a node reads, those of the outer scope of its subgraphs included."""
    names = {name for name in node.input if name}
    for graph in subgraphs(node):
        inner = {v.name for v in graph.input} | {t.name for t in graph.initializer}
        for child in graph.node:
            names |= reads(child) - inner
            inner.update(child.output)
        names |= {o.name for o in graph.output} - inner
    return names


def rename_tensors(node: NodeProto, names: Mapping[str, str]) -> None:
    """Write other names for tensors into a node and its subgraphs."""
    node.input[:] = [names.get(name, name) for name in node.input]
    node.output[:] = [names.get(name, name) for name in node.output]
    for graph in subgraphs(node):
        for child in graph.node:
            rename_tensors(child, names)
        for declared in (*graph.output, *graph.input, *graph.initializer, *graph.value_info):
            declared.name = names.get(declared.name, declared.name)


def attributes_of(node: NodeProto, function: FunctionProto) -> list[AttributeProto]:
    """The attributes of a call: those of the node, and the function's own values for the others."""
    given = {attribute.name for attribute in node.attribute}
    return [*node.attribute, *(a for a in function.attribute_proto if a.name not in given)]


def bind_attributes(node: NodeProto, values: Mapping[str, AttributeProto]) -> None:
    """Replace references to a function's attributes by the caller's; absent ones fall away."""
    for body in subgraphs(node):
        for child in body.node:
            bind_attributes(child, values)
    bound = []
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            bound.append(attribute)
        elif attribute.ref_attr_name in values:
            copy = AttributeProto()
            copy.CopyFrom(values[attribute.ref_attr_name])
            copy.name = attribute.name
            bound.append(copy)
    kept = [AttributeProto.FromString(a.SerializeToString()) for a in bound]
    del node.attribute[:]
    node.attribute.extend(kept)


def opset_of(model: ModelProto) -> int | None:
    """The version of the default domain that a model imports, under either of its names."""
    return next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), None)


def default_domain(model: ModelProto) -> None:
    """Write the default domain as "" everywhere: "ai.onnx" is another name for it."""
    for i in reversed(range(len(model.opset_import))):
        if model.opset_import[i].domain == "ai.onnx":
            if any(imported.domain == "" for imported in model.opset_import):
                del model.opset_import[i]
            else:
                model.opset_import[i].domain = ""
    for node in nodes_of(model):
        if node.domain == "ai.onnx":
            node.domain = ""


def replace_items(container: Any, kept: Iterable[Any]) -> None:
    """Set a repeated field to some of its own elements; they survive its being emptied."""
    copies = list(kept)
    del container[:]
    container.extend(copies)
