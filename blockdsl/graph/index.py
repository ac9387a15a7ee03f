"""The index of a growing model: what each of its tensors is, kept up to date as it grows.

Blocks append to the proto, through `op` or, as onnxblock code does, by hand. After every build the
index looks at what was appended, and only at that: each new node is checked against its schema
and its outputs are typed. So validation costs what was added, never what the model holds.
"""

from __future__ import annotations

import copy
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    checker,
    helper,
)

from blockdsl.errors import GraphError, UnknownNameError, near
from blockdsl.graph import microsoft, nested
from blockdsl.graph.check import check_calls, is_small, skeleton
from blockdsl.graph.completion import complete, has_rank, together
from blockdsl.graph.declarations import correct, declared_types, remove_declarations
from blockdsl.graph.fold import Known, as_tensor, fold, folds, known
from blockdsl.graph.infer import infer_outputs
from blockdsl.graph.naming import Namer
from blockdsl.graph.normal_form import normalize
from blockdsl.graph.schema import Operator
from blockdsl.graph.seen import Seen, begins_as
from blockdsl.graph.sparse import densify
from blockdsl.graph.tensor import TensorType, array_of
from blockdsl.graph.walk import WITH_BODIES, names_in, reads


class Index:
    """Types, constants and producers of the tensors of a model.

    Args:
        proto: The model.
    """

    def __init__(self, proto: ModelProto) -> None:
        self.proto = proto
        self.names = Namer()
        self._types: dict[str, TypeProto] = {}
        self._tensors: dict[str, TensorType | None] = {}
        self._constants: dict[str, TensorProto] = {}
        self._producers: dict[str, NodeProto] = {}
        self._given: set[str] = set()
        """The inputs and initializers."""
        self._seen: list[Any] = []
        self._opsets: dict[str, int] = {}
        self._body = ""
        """The name of the graph, if it is the body of a loop or branch."""
        self._inside: dict[str, str] = {}
        """The tensors of bodies, by the name of the body: outside of it they do not exist."""
        normalize(proto)
        densify(proto)
        self._reindex()
        self._opened = frozenset(self._producers)
        """The tensors that nodes computed when the model was opened."""

    def __contains__(self, name: object) -> bool:
        return name in self._types or name in self._producers

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

    def is_tensor(self, name: str) -> bool:
        """Whether a name is that of a tensor of known type."""
        found = self._types.get(name)
        return found is not None and found.HasField("tensor_type")

    def is_sequence(self, name: str) -> bool:
        """Whether a name is that of a sequence."""
        found = self._types.get(name)
        return found is not None and found.HasField("sequence_type")

    def known_names(self) -> Iterable[str]:
        """Every name that has a type."""
        return self._types.keys()

    def type_proto(self, name: str) -> TypeProto:
        """The `TypeProto` of a value; see `type_of` for the errors."""
        if name in self._types:
            return self._types[name]
        if name in self._producers:
            raise GraphError(
                f"The type of {str(name)!r}, an output of {self._producers[name].op_type}, is not "
                f"known. Add a value_info for it to the model."
            )
        raise self.unknown(name)

    def is_inside(self, name: str) -> bool:
        """Whether a name is that of a tensor in the body of a loop or branch that is built here."""
        return name in self._inside

    def unknown(self, name: str, asker: str = "The model") -> UnknownNameError:
        """The error for a name that is not visible here.

        Args:
            name: The name.
            asker: Who reads it, for the message.
        """
        if name in self._inside:
            return UnknownNameError(
                f"{asker} reads {str(name)!r}, which exists only in the body "
                f"{self._inside[name]!r}: return it from the function that builds the body, and "
                f"use the output of the branch or loop instead."
            )
        return UnknownNameError(
            f"{asker} reads {str(name)!r}, and the model has no such tensor. "
            f"{near(name, self._types)}"
        )

    def constant_value(self, name: str) -> np.ndarray | None:
        """The value of a small constant, `None` if the tensor is not one."""
        tensor = self._constants.get(name)
        return None if tensor is None else array_of(tensor)

    def make_variable(self, name: str) -> None:
        """Forget the value of a tensor, which is to be changed."""
        self._constants.pop(name, None)

    def producer(self, name: str) -> NodeProto | None:
        """The node that computes a tensor, `None` for inputs and initializers."""
        return self._producers.get(name)

    def opset(self, domain: str = "") -> int:
        """The version of a domain that the model imports, 0 if it does not."""
        return self._opsets.get(domain, 0)

    def operator_of(self, node: NodeProto) -> Operator | None:
        """The operator of a node in this model's opset, `None` if nothing is known of it."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        return microsoft.operator(node.op_type, self.opset(domain), domain)

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
        complete(nodes, self._types, self._constants, declared, self._infer_typed)
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
            context = checker.C.CheckerContext()
            context.ir_version = self.proto.ir_version
            context.opset_imports = self._opsets
            try:
                checker.check_node(node, context)
            except checker.ValidationError as error:
                raise GraphError(f"Node {node.name!r} ({node.op_type}): {error}") from error
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

    def _infer_typed(self, node: NodeProto) -> Mapping[str, TypeProto]:
        """The types of a node's outputs, as far as the operator and its inputs are known."""
        if not all(name in self._types for name in reads(node)):
            return {}
        op = self.operator_of(node)
        return self._infer_call(node) if op is None else self._infer(node, op)

    def _infer(self, node: NodeProto, op: Operator) -> dict[str, TypeProto]:
        types = {name: self.type_proto(name) for name in reads(node)}
        if op.schema is None:
            return microsoft.infer_outputs(node, types)
        constants = {n: self._constants[n] for n in node.input if n in self._constants}
        opsets, ir_version = self.proto.opset_import, self.proto.ir_version
        found = infer_outputs(op, node, types, constants, opsets, ir_version)
        if node.op_type in WITH_BODIES and not node.domain:
            self._infer_through_bodies(node, types, found)
        return found

    def branch_of(self, node: NodeProto) -> int | None:
        """The branch that an `If` takes, 0 or 1, if its condition is a constant."""
        if node.op_type != "If" or node.domain:
            return None
        condition = self.constant_value(node.input[0])
        return None if condition is None else int(not condition.all())

    def function_of(self, node: NodeProto) -> FunctionProto | None:
        """The model's own function that a node calls."""
        own: Iterable[FunctionProto] = self.proto.functions
        return next((f for f in own if (f.domain, f.name) == (node.domain, node.op_type)), None)

    def _infer_call(self, node: NodeProto) -> dict[str, TypeProto]:
        """The types of the outputs of a call, if it is one of a function that ONNX sees through."""
        function = self.function_of(node)
        if function is None or not all(name in self._types for name in node.input):
            return {}
        try:
            found = onnx.shape_inference.infer_function_output_types(
                function, [self._types[name] for name in node.input], list(node.attribute)
            )
        except (onnx.shape_inference.InferenceError, RuntimeError):
            return {}
        return {name: proto for name, proto in zip(node.output, found, strict=False) if name}

    def _infer_through_bodies(
        self, node: NodeProto, types: Mapping[str, TypeProto], found: dict[str, TypeProto]
    ) -> None:
        """Add the outputs that ONNX left without a rank, from the nodes of the bodies."""
        branch = self.branch_of(node)
        if branch is None and all(has_rank(found.get(name)) for name in node.output if name):
            return
        made = [self._infer_body(*b) for b in nested.entering(node, types, self.opset())]
        known_types = nested.leaving(node, made, branch) if made else []
        for name, proto in zip(node.output, known_types, strict=False):
            unknown = branch is not None or not has_rank(found.get(name))
            if proto is not None and name and unknown:
                found[name] = proto

    def _infer_body(
        self, body: GraphProto, inputs: Sequence[TypeProto | None]
    ) -> list[TypeProto | None]:
        """The types of a body's outputs."""
        inner = copy.copy(self)
        inner.names, inner._given, inner._inside = Namer(), set(), {}
        for field in ("_types", "_tensors", "_constants", "_producers"):
            setattr(inner, field, ChainMap({}, getattr(self, field)))
        for given, known_type in zip(body.input, inputs, strict=True):
            inner._declare(given.name, known_type or given.type)
        for tensor in body.initializer:
            inner._declare_initializer(tensor)
        for child in body.node:
            inner._register(child, inner._infer_typed(child))
        return [inner._types.get(output.name) for output in body.output]

    def _register(self, node: NodeProto, types: Mapping[str, TypeProto]) -> None:
        for name in filter(None, node.output):
            self._producers[name] = node
            self._take(name)
            if name in types:
                self._declare(name, types[name])
        for name in names_in(node):
            self.names.take(name)
        self._note_given(node)
        if folds(node):
            self._note_computed(node)

    def _note_given(self, node: NodeProto) -> None:
        """Note a constant that a node holds."""
        if node.op_type == "Constant" and not node.domain and node.attribute[0].HasField("t"):
            if is_small(node.attribute[0].t):
                self._constants[node.output[0]] = node.attribute[0].t
        elif node.op_type == "Identity" and node.input[0] in self._constants:
            self._constants[node.output[0]] = self._constants[node.input[0]]

    def _note_computed(self, node: NodeProto) -> None:
        """Note the integers that a node computes, if all of them are known: a static shape, say."""
        inputs: dict[str, Known] = {}
        for name in node.input:
            array = self.constant_value(name)
            value = None if array is None else known(array)
            if value is not None:
                inputs[name] = value
        found = fold(node, inputs, self._types)
        tensor = None if found is None else as_tensor(found, self._types.get(node.output[0]))
        if tensor is not None:
            self._constants[node.output[0]] = tensor

    def _take(self, name: str) -> None:
        """Note a name that is used."""
        self.names.take(name)
        if self._body:
            self._inside[name] = self._body

    def _declare(self, name: str, proto: TypeProto) -> None:
        self._take(name)
        if proto.WhichOneof("value") is not None:
            self._types[name] = proto
            self._tensors.pop(name, None)

    def _declare_input(self, info: ValueInfoProto) -> None:
        self._declare(info.name, info.type)
        self._given.add(info.name)

    def _declare_initializer(self, tensor: TensorProto) -> None:
        self._given.add(tensor.name)
        self._declare(tensor.name, helper.make_tensor_type_proto(tensor.data_type, tensor.dims))
        if is_small(tensor):
            self._constants[tensor.name] = tensor
