"""An ONNX model as a block: its graph becomes a part of the model under construction."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto

from blockdsl.blocks.block import Block
from blockdsl.errors import GraphError, ModelFileError, OpError, near
from blockdsl.graph.context import current
from blockdsl.graph.declarations import declared_types
from blockdsl.graph.evaluation_mode import to_evaluation_mode
from blockdsl.graph.marks import BUFFER, mark
from blockdsl.graph.model import Graph
from blockdsl.graph.normal_form import normalize
from blockdsl.graph.opset_conversion import to_opset
from blockdsl.graph.schema import operator
from blockdsl.graph.sparse import densify
from blockdsl.graph.tensor import TensorType
from blockdsl.graph.value import Operand, Value
from blockdsl.graph.walk import (
    all_nodes,
    nodes_of,
    rename_tensors,
    replace_items,
    subgraphs,
)

StrPath = str | os.PathLike[str]


class Model(Block):
    """An ONNX model as a block.

    Calling it appends the nodes of the model, and its outputs are returned. Initializers are shared
    by all calls; their names and those of nodes begin with the path of the block:
    `Net/teacher/conv1.weight`. A model of another opset is converted to that of the model under
    construction.

    Args:
        model: The model, or the path of its file.
        trainable: Whether its weights are trained, as those of any model are. If not, they stay as
            they are and the model is in evaluation mode: dropout is off, and batch normalisation
            uses its running statistics. `requires_grad` of `generate_artifacts` can still name
            weights. Gradients flow through to the inputs in any case.

    Raises:
        ModelFileError: The file is missing or is not an ONNX model.
        GraphError: The model is not valid, or the values of its tensors lie in other files.

    Example:
        >>> import blockdsl
        >>> from blockdsl.blocks import Linear
        >>> with blockdsl.empty_base() as handle:
        ...     encoder = Linear(3, 2)
        ...     blockdsl.graph.current().set_outputs(
        ...         [encoder(blockdsl.input("x", shape=("batch", 3)))]
        ...     )
        >>> encoder = Model(handle.model)
        >>> with blockdsl.empty_base() as handle:
        ...     a, b = (blockdsl.input(name, shape=("batch", 3)) for name in "ab")
        ...     difference = encoder(a) - encoder(x=b)
        >>> [t.name for t in handle.model.graph.initializer]
        ['Model/Linear.weight', 'Model/Linear.bias']
    """

    def __init__(self, model: ModelProto | StrPath, trainable: bool = True) -> None:
        self.trainable = trainable
        self._shown = "..." if isinstance(model, ModelProto) else repr(os.fspath(model))
        self._proto = _opened(model)
        self._converted: dict[int, ModelProto] = {}

    def __repr__(self) -> str:
        return f"Model({self._shown}, trainable={self.trainable})"

    def build(self, *inputs: Operand, **named: Operand) -> Any:
        """Append the model.

        Args:
            *inputs: Its inputs in order: tensors, numbers or arrays.
            **named: Inputs by their names.

        Returns:
            Its output, or a tuple of its outputs in order.

        Raises:
            OpError: The inputs are not those of the model, or the model cannot be converted to the
                opset of the one under construction.
        """
        graph = current()
        model = self._at(graph.opset())
        names = {str(k): str(v) for k, v in self._bound(graph, inputs, named).items()}
        path = graph.names.path
        for tensor in model.graph.initializer:
            full = f"{path}/{_hint(tensor.name)}"
            if full not in graph.owned:
                with graph.names.root():
                    graph.owned[full] = str(graph.add_tensor(tensor, full))
            names[tensor.name] = graph.owned[full]
        domains = _carry_functions(graph, model, path)
        _import_domains(graph, model, domains)
        nodes = _renamed(graph, model, names, domains)
        declared = {names[n]: t for n, t in declared_types(model.graph).items() if n in names}
        graph.graft(nodes, declared)
        outputs = tuple(graph.value(names[output.name]) for output in model.graph.output)
        return outputs[0] if len(outputs) == 1 else outputs

    def _at(self, opset: int) -> ModelProto:
        """Return the model in an opset."""
        if opset not in self._converted:
            model = to_opset(self._proto, opset, repr(self))
            if not self.trainable:
                _freeze(model)
            self._converted[opset] = model
        return self._converted[opset]

    def _bound(
        self, graph: Graph, inputs: Sequence[Operand], named: Mapping[str, Operand]
    ) -> dict[str, Value]:
        """Return the tensor of each input of the model."""
        wanted = {info.name: TensorType.of(info.type) for info in self._proto.graph.input}
        given = dict(zip(wanted, inputs, strict=False))
        twice, unknown = given.keys() & named.keys(), named.keys() - wanted.keys()
        given.update(named)
        problems = [
            *(f"{name!r} is none of them. {near(name, wanted)}" for name in sorted(unknown)),
            *(f"{name!r} is given twice." for name in sorted(twice)),
            *(f"{name!r} is missing." for name in wanted if name not in given),
            *([f"{len(inputs)} were given."] if len(inputs) > len(wanted) else []),
        ]
        if problems:
            raise OpError(f"{self!r} takes the inputs {', '.join(wanted)}: {problems[0]}")
        return {name: self._fitted(graph, name, given[name], kind) for name, kind in wanted.items()}

    def _fitted(self, graph: Graph, name: str, given: Operand, kind: TensorType | None) -> Value:
        """Return an input as a tensor of the model under construction, if its type fits."""
        if not isinstance(given, str):
            return graph.add_constant(np.asarray(given, None if kind is None else kind.dtype))
        value = graph.value(given)
        if kind is None or not graph.is_tensor(value):
            return value
        found = value.type
        ranks = [len(t.shape) for t in (found, kind) if t.shape is not None]
        if found.elem_type != kind.elem_type or len(set(ranks)) > 1:
            raise OpError(
                f"{self!r} takes {kind} as its input {name!r}, and {given!s} is {found}. Cast or "
                f"reshape it first: x.cast({kind.dtype.name!r})."
            )
        return value


def _opened(given: ModelProto | StrPath) -> ModelProto:
    """Return a model of one's own, in normal form."""
    if isinstance(given, ModelProto):
        model = copy.deepcopy(given)
    else:
        try:
            model = onnx.load(os.fspath(given))
        except Exception as error:  # OSError, protobuf's DecodeError, classes of onnx's C++ part
            raise ModelFileError(
                f"The model '{os.fspath(given)}' cannot be read: {error}. "
                f"It must be an ONNX model, with the files of its weights beside it."
            ) from error
    if not model.graph.output:
        raise GraphError("The model has no outputs, so that as a block it computes nothing.")
    for tensor in _tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            raise GraphError(
                f"The values of {tensor.name!r} lie in another file. Pass the path of the model "
                f"instead of the ModelProto."
            )
    densify(model)
    normalize(model)
    own = {tensor.name for tensor in model.graph.initializer}
    replace_items(model.graph.input, [info for info in model.graph.input if info.name not in own])
    return model


def _freeze(model: ModelProto) -> None:
    """Put a model into evaluation mode, and mark its weights as buffers."""
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        to_evaluation_mode(nodes)
    for tensor in _tensors(model):
        mark(tensor, BUFFER)


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield the tensors whose values a model holds: in graphs, bodies, functions and nodes."""
    yield from model.graph.initializer
    for node in nodes_of(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
        for body in subgraphs(node):
            yield from body.initializer


def _carry_functions(graph: Graph, model: ModelProto, path: str) -> dict[str, str]:
    """Add the functions of a model, and return the new names of their domains.

    Where the model under construction has another function of the same name, the domains get names
    of their own.
    """
    root = graph.scopes[0].proto
    known = {(f.domain, f.name): f for f in root.functions}
    own = {f.domain for f in model.functions}
    clash = any(known.get((f.domain, f.name), f) != f for f in model.functions)
    domains = {domain: f"{domain}.{path.replace('/', '.')}" for domain in own} if clash else {}
    for function in model.functions:
        carried = FunctionProto()
        carried.CopyFrom(function)
        carried.domain = domains.get(function.domain, function.domain)
        _move_domains(all_nodes(carried.node), domains)
        for imported in carried.opset_import:
            imported.domain = domains.get(imported.domain, imported.domain)
        if (carried.domain, carried.name) not in known:
            root.functions.append(carried)
    if model.functions:
        root.ir_version = max(root.ir_version, 8)
    return domains


def _move_domains(nodes: Iterator[NodeProto], domains: Mapping[str, str]) -> None:
    for node in nodes:
        node.domain = domains.get(node.domain, node.domain)


def _import_domains(graph: Graph, model: ModelProto, domains: Mapping[str, str]) -> None:
    """Import the other domains that a model uses.

    Raises:
        OpError: One is imported in another version in which an operator has another form.
    """
    for imported in model.opset_import:
        domain, version = imported.domain, imported.version
        for scope in graph.scopes:
            scope.require_opset(domains.get(domain, domain), version)
        here = graph.opset(domains.get(domain, domain))
        if domain and here != version:
            for node in nodes_of(model):
                forms = [operator(node.op_type, v, domain) for v in (version, here)]
                if node.domain == domain and forms[0] != forms[1]:
                    raise OpError(
                        f"The model uses {domain}::{node.op_type} of version {version}, and the "
                        f"model under construction imports version {here}: import one version."
                    )


def _renamed(
    graph: Graph, model: ModelProto, names: dict[str, str], domains: Mapping[str, str]
) -> list[NodeProto]:
    """Return copies of the nodes of a model under names that are free, which are added to `names`.

    Bodies are renamed too: their tensors must not have the names of those around them.
    """
    nodes = [NodeProto.FromString(node.SerializeToString()) for node in model.graph.node]
    for node in all_nodes(nodes):
        node.name = graph.names.unique(_hint(node.name or node.op_type))
        bodies = list(subgraphs(node))
        inner = [v.name for g in bodies for v in (*g.input, *g.initializer)]
        for name in filter(None, [*node.output, *inner]):
            if name not in names:
                names[name] = graph.names.unique(_hint(name))
    _move_domains(all_nodes(nodes), domains)
    for node in nodes:
        rename_tensors(node, names)
    return nodes


def _hint(name: str) -> str:
    """Return a name that can follow a path: PyTorch's begin with a slash."""
    return name.lstrip("/") or name
