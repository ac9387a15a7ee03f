"""The form that models are brought into when they are opened.

Runtimes take models that the specification, or its checker, does not: nodes in any order, imports
that are missing, values that are given twice. Here they become what the package expects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

from onnx import ModelProto, NodeProto, defs, helper

from blockdsl.errors import GraphError
from blockdsl.graph.naming import Namer
from blockdsl.graph.schema import MICROSOFT, ML
from blockdsl.graph.walk import (
    WITH_BODIES,
    default_domain,
    inputs_of,
    nodes_of,
    replace_items,
    subgraphs,
)


def normalize(model: ModelProto) -> None:
    """Bring a model into the form that the package expects, without a change of its meaning.

    Afterwards every domain that nodes use is imported, nodes are in topological order and have
    different names, no initializer is given twice, and no input has a negative dimension.

    Raises:
        GraphError: The nodes form a cycle, or two of them write one tensor.
    """
    default_domain(model)
    _import_domains(model)
    graph = model.graph
    # Of several, ONNX Runtime takes the last one; without a name, none.
    for field, key in ((graph.initializer, "name"), (model.metadata_props, "key")):
        last = {getattr(item, key): item for item in field}
        if len(last) < len(field) or "" in last:
            replace_items(field, (item for item in last.values() if getattr(item, key)))
    for info in graph.input:
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_value < 0:
                dim.Clear()
    for nodes in _node_lists([graph.node, *(function.node for function in model.functions)]):
        _sort(nodes)
        _name_apart(nodes)


def _import_domains(model: ModelProto) -> None:
    """Import the operators of ONNX Runtime and of classical machine learning, if they are used."""
    versions = {MICROSOFT: 1, ML: defs.onnx_ml_opset_version()}
    imported = {opset.domain: opset for opset in model.opset_import}
    for domain in {node.domain for node in nodes_of(model)} & versions.keys():
        if domain not in imported:
            model.opset_import.append(helper.make_opsetid(domain, versions[domain]))
    for domain in imported.keys() & versions.keys():
        imported[domain].version = imported[domain].version or versions[domain]


def _node_lists(lists: Iterable[Any]) -> Iterator[Any]:
    """The lists of nodes and those of the bodies in them, at any depth."""
    for nodes in lists:
        bodies = [b for n in nodes if n.op_type in WITH_BODIES for b in subgraphs(n)]
        yield from _node_lists(body.node for body in bodies)
        yield nodes


def _sort(nodes: Any) -> None:
    """Put nodes into topological order, if they are in another one."""
    writers: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in filter(None, node.output):
            if writers.setdefault(name, i) != i:
                raise GraphError(_written_twice(name, nodes[writers[name]], node))
    sources = [[writers[name] for name in inputs_of(n) if name in writers] for n in nodes]
    if all(source < i for i, earlier in enumerate(sources) for source in earlier):
        return
    try:
        order = list(TopologicalSorter(dict(enumerate(sources))).static_order())
    except CycleError as error:
        names = ", ".join(repr(nodes[i].output[0]) for i in error.args[1][:-1])
        raise GraphError(
            f"The nodes of the model form a cycle: each of the tensors {names} depends on all of "
            f"them. Write what is carried from step to step as the state of a Loop or Scan."
        ) from error
    replace_items(nodes, [nodes[i] for i in order])


def _written_twice(name: str, one: NodeProto, other: NodeProto) -> str:
    return (
        f"The model is not in single static assignment form: {name!r} is written by the nodes "
        f"{one.name!r} ({one.op_type}) and {other.name!r} ({other.op_type}). Rename one of the two "
        f"tensors, and wherever it is read."
    )


def _name_apart(nodes: Iterable[NodeProto]) -> None:
    """Rename nodes that have the name of an earlier one: ONNX Runtime refuses them."""
    nodes = [node for node in nodes if node.name]
    namer = Namer()
    earlier: set[str] = set()
    for node in nodes:
        namer.take(node.name)
    for node in nodes:
        if node.name in earlier:
            node.name = namer.unique(node.name)
        earlier.add(node.name)
