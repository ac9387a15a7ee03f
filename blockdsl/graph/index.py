"""The index of a growing model: what each of its tensors is, kept up to date as it grows.

Blocks append to the proto, through `op` or, as onnxblock code does, by hand. After every build the
index looks at what was appended, and only at that: each new node is checked against its schema
and its outputs are typed. So validation costs what was added, never what the model holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
from onnx import (
    ModelProto,
    NodeProto,
    TypeProto,
    checker,
)

from blockdsl.errors import GraphError, near
from blockdsl.graph.check import check_calls, check_node, skeleton
from blockdsl.graph.completion import complete, together
from blockdsl.graph.declarations import correct, declared_types, remove_declarations
from blockdsl.graph.normal_form import normalize
from blockdsl.graph.seen import Seen, begins_as
from blockdsl.graph.sparse import densify
from blockdsl.graph.tensor import TensorType
from blockdsl.graph.type_index import TypeIndex
from blockdsl.graph.walk import WITH_BODIES, names_in, reads


class Index(TypeIndex):
    """Types, constants and producers of the tensors of a model that grows.

    Args:
        proto: The model.
    """

    def __init__(self, proto: ModelProto) -> None:
        super().__init__(proto)
        self._seen: list[Any] = []
        normalize(proto)
        densify(proto)
        self._reindex()
        self._opened = frozenset(self._producers)
        """The tensors that nodes computed when the model was opened."""

    def type_of(self, name: str) -> TensorType:
        """The type of a tensor.

        Raises:
            UnknownNameError: There is no such tensor.
            GraphError: It is not a tensor, or its type is not known.
        """
        if name not in self._tensors:
            if name not in self:
                self.sync()
            self._tensors[name] = TensorType.of(self.type_proto(name))
        found = self._tensors[name]
        if found is None:
            raise GraphError(f"{str(name)!r} is a sequence, an optional or a map, not a tensor.")
        return found

    def sync(self) -> None:
        """Bring the index up to date with what was appended to the proto by hand.

        Raises:
            GraphError: Something that was appended is not valid.
        """
        lists = self._lists()
        if not all(map(begins_as, lists, self._seen)):
            self._reindex()
            return
        inputs, initializers, values, nodes = sizes = [seen.size for seen in self._seen]
        if sizes == [len(items) for items in lists]:
            return
        graph = self.proto.graph
        for info in graph.input[inputs:]:
            self._declare_input(info)
        for info in graph.value_info[values:]:
            self._declare(info.name, info.type)
        for tensor in graph.initializer[initializers:]:
            self._declare_initializer(tensor)
        self._opsets = {o.domain or "": o.version for o in self.proto.opset_import}
        self._siblings = graph.node
        for node in graph.node[nodes:]:
            self._admit(node)
        self._seen = self._counts()

    def _lists(self) -> tuple[Any, ...]:
        """What blocks append to."""
        graph = self.proto.graph
        return graph.input, graph.initializer, graph.value_info, graph.node

    def _counts(self) -> list[Seen]:
        """How far each of the lists has been looked at."""
        return [Seen.of(items) for items in self._lists()]

    def _reindex(self) -> None:
        """Index the whole model anew, with ONNX's inference over all of it at once."""
        graph = self.proto.graph
        self._siblings = graph.node
        self._opsets = {o.domain or "": o.version for o in self.proto.opset_import}
        for table in (self._types, self._tensors, self._constants, self._producers, self._given):
            table.clear()
        inferred = graph
        if graph.node:
            check_calls(self.proto)
            bare = skeleton(self.proto)
            remove_declarations(bare.graph)
            try:
                inferred = onnx.shape_inference.infer_shapes(bare, data_prop=True).graph
            except (checker.ValidationError, onnx.shape_inference.InferenceError) as error:
                raise GraphError(f"The base model is not valid ONNX: {error}") from error
        for info in (*inferred.value_info, *inferred.output):
            self._declare(info.name, info.type)
        for info in graph.input:
            self._declare_input(info)
        for tensor in graph.initializer:
            self._declare_initializer(tensor)
        for node in graph.node:
            self._producers.update(dict.fromkeys(filter(None, node.output), node))
            for name in names_in(node):
                self.names.take(name)
            self._note_given(node)
        self._complete(declared_types(graph))
        correct(graph, self._types)
        self._seen = self._counts()

    def _complete(self, declared: Mapping[str, TypeProto]) -> None:
        """Type what ONNX's inference of the whole model left open."""
        nodes = self.proto.graph.node
        complete(nodes, self._types, self._constants, declared, self._infer_typed, self._evaluate)
        self._tensors.clear()

    def _admit(self, node: NodeProto) -> None:
        """Check a node that was appended by hand, and index it."""
        for name in reads(node):
            if name not in self and self.is_inside(name):
                raise self.unknown(name, f"Node {node.name!r} ({node.op_type})")
            if name not in self:
                raise GraphError(
                    f"Node {node.name!r} ({node.op_type}) reads {name!r}, which no input, "
                    f"initializer or earlier node provides. {near(name, self._types)}"
                )
        for name in filter(None, node.output):
            provider = self._provider(name)
            if provider is not None:
                raise GraphError(
                    f"Node {node.name!r} ({node.op_type}) writes {name!r}, which {provider} "
                    f"already: every tensor is written once."
                )
        op = self.operator_of(node)
        # The checker knows no scope around the bodies of a node: they wait for the full check.
        if (op is None or op.schema is not None) and node.op_type not in WITH_BODIES:
            check_node(node, self.proto.ir_version, self._opsets)
        found = self._infer(node, op) if op is not None else self._infer_call(node)
        for name, proto in found.items():
            if name in self._types:  # a value_info declares it
                found[name] = together(proto, self._types[name]) or proto
        self._register(node, found)

    def _provider(self, name: str) -> str | None:
        """What provides a tensor, in words, `None` if nothing does yet."""
        if name in self._producers:
            other = self._producers[name]
            return f"node {other.name!r} ({other.op_type}) writes"
        if name in self._types and name in self._given:
            return "is an input or initializer"
        return None
