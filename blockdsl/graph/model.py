"""The model under construction: a live `onnx.ModelProto` and an index of it.

Blocks append to the proto, through `op` or, as onnxblock code does, by hand. After every build the
index looks at what was appended, and only at that: each new node is checked against its schema
and its outputs are typed. So validation costs what was added, never what the model holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, checker, helper, numpy_helper

from blockdsl.errors import GraphError, UnknownNameError, near
from blockdsl.graph import microsoft
from blockdsl.graph.check import check_model, is_small, skeleton
from blockdsl.graph.infer import infer_outputs
from blockdsl.graph.naming import Namer
from blockdsl.graph.schema import Operator, operator
from blockdsl.graph.tensor import Dim, TensorType, elem_type_of
from blockdsl.graph.value import Value


class Graph:
    """A model that grows.

    Args:
        proto: The model; the graph owns it and changes it.
        path: The file it came from, which external data is relative to.
    """

    def __init__(self, proto: ModelProto, path: str | os.PathLike[str] | None = None) -> None:
        self.proto = proto
        self.path = path
        self.parameters: list[str] = []
        """The initializers that blocks made as parameters, in order."""
        self.names = Namer()
        self._types: dict[str, TypeProto] = {}
        self._tensors: dict[str, TensorType | None] = {}
        self._constants: dict[str, TensorProto] = {}
        self._producers: dict[str, NodeProto] = {}
        self._interned: dict[tuple[Any, ...], str] = {}
        self._seen = (0, 0, 0, 0)
        self._opsets = {o.domain or "": o.version for o in proto.opset_import}
        self._reindex()

    # -- what is there -------------------------------------------------------------------------

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
        raise UnknownNameError(f"The model has no tensor {str(name)!r}. {near(name, self._types)}")

    def constant_value(self, name: str) -> np.ndarray | None:
        """The value of a small constant, `None` if the tensor is not one."""
        tensor = self._constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def producer(self, name: str) -> NodeProto | None:
        """The node that computes a tensor, `None` for inputs and initializers."""
        return self._producers.get(name)

    def opset(self, domain: str = "") -> int:
        """The version of a domain that the model imports, 0 if it does not."""
        return self._opsets.get(domain, 0)

    def operator_of(self, node: NodeProto) -> Operator | None:
        """The operator of a node in this model's opset, `None` if nothing is known of it."""
        if node.domain == microsoft.DOMAIN:
            return microsoft.OPERATORS.get(node.op_type)
        domain = "" if node.domain == "ai.onnx" else node.domain
        return operator(node.op_type, self.opset(domain), domain)

    def value(self, name: str) -> Value:
        """A tensor of this model as a `Value`."""
        return Value(name, self)

    def initializer_names(self) -> list[str]:
        """The initializers, in order."""
        return [t.name for t in self.proto.graph.initializer]

    def require_opset(self, domain: str, version: int) -> None:
        """Import a domain that a function body needs, if the model does not import it yet."""
        domain = "" if domain == "ai.onnx" else domain
        if domain not in self._opsets:
            self._import(domain, version)

    def user_inputs(self) -> list[str]:
        """The graph inputs that are not initializers too."""
        initializers = {t.name for t in self.proto.graph.initializer}
        return [i.name for i in self.proto.graph.input if i.name not in initializers]

    # -- what is added -------------------------------------------------------------------------

    def add_node(
        self,
        op: Operator,
        inputs: Sequence[str],
        outputs: int | Sequence[str] = 1,
        attributes: Mapping[str, Any] | None = None,
    ) -> list[Value]:
        """Append a node.

        Args:
            op: Its operator.
            inputs: The names of its inputs, "" for one that is left out.
            outputs: How many outputs it has, or their names ("" for one that is left out).
            attributes: Its attributes.

        Returns:
            Its outputs.

        Raises:
            GraphError: The inputs do not fit; nothing is appended then.
        """
        self.sync()
        name = self.names.unique(op.name)
        node = NodeProto(op_type=op.name, name=name, domain=op.domain)
        node.input.extend(inputs)
        node.output.extend(_output_names(name, op, outputs) if isinstance(outputs, int) else outputs)
        for key, value in (attributes or {}).items():
            node.attribute.append(_attribute(op, key, value))
        if op.domain not in self._opsets:
            self._import(op.domain, op.version)
        types = self._infer(node, op)
        self.proto.graph.node.append(node)
        self._register(self.proto.graph.node[-1], types)
        self._seen = self._counts()
        return [self.value(output) for output in node.output]

    def add_constant(self, array: np.ndarray, hint: str = "constant") -> Value:
        """An initializer that is not a parameter; equal small ones are shared."""
        array = np.asarray(array)
        key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        small = array.nbytes <= 256
        if small and key in self._interned:
            return self.value(self._interned[key])
        with self.names.root():
            name = self.names.unique(_constant_name(array, hint))
        self._add_initializer(array, name)
        if small:
            self._interned[key] = name
        return self.value(name)

    def add_parameter(self, array: np.ndarray, name: str) -> Value:
        """An initializer that is trained unless it is frozen."""
        name = self.names.unique(name)
        self._add_initializer(np.asarray(array), name)
        self.parameters.append(name)
        return self.value(name)

    def add_input(self, name: str, elem_type: int, shape: Sequence[Dim] | None) -> Value:
        """A graph input.

        Raises:
            GraphError: The name is taken.
        """
        self.sync()
        if name in self:
            raise GraphError(f"The model already has a tensor {name!r}: give the input another name.")
        info = helper.make_tensor_value_info(name, elem_type, shape)
        self.proto.graph.input.append(info)
        self._declare(name, info.type)
        self._seen = self._counts()
        return self.value(name)

    def set_outputs(self, names: Iterable[str]) -> None:
        """Make these tensors the outputs of the graph, in this order.

        Raises:
            UnknownNameError: There is no such tensor.
        """
        self.sync()
        infos = [helper.make_value_info(name, self._output_type(name)) for name in names]
        del self.proto.graph.output[:]
        self.proto.graph.output.extend(infos)
        self._seen = self._counts()

    @contextmanager
    def scope(self, name: str) -> Iterator[str]:
        """Name what is added inside after a block; scopes nest."""
        with self.names.scope(name) as path:
            yield path

    def annotate(self, name: str, tensor: TensorType) -> None:
        """Say what is known of a tensor beyond what inference found."""
        self._types[name] = tensor.proto()
        self._tensors[name] = tensor

    def rename_output(self, node: NodeProto, index: int, name: str) -> Value:
        """Give an output that nothing reads yet another name."""
        old = node.output[index]
        node.output[index] = name
        self._types[name] = self._types.pop(old)
        self._tensors.pop(old, None)
        self._producers[name] = self._producers.pop(old)
        self.names.take(name)
        return self.value(name)

    def declare_output(self, node: NodeProto, index: int) -> Value:
        """An optional output of a node, declared on it if it is not yet."""
        while len(node.output) <= index:
            node.output.append("")
        if not node.output[index]:
            op = self.operator_of(node)
            assert op is not None
            node.output[index] = self.names.unique(f"{node.name}.{op.outputs[index].name}")
            self._register(node, self._infer(node, op))
        return self.value(node.output[index])

    def prune(self, start: int, keep: Iterable[str]) -> None:
        """Remove the nodes appended since `start` that none of these tensors needs."""
        nodes = self.proto.graph.node
        tail, needed = list(nodes[start:]), set(keep)
        needed.update(name for node in nodes[:start] for name in node.input)
        kept = []
        for node in reversed(tail):
            if any(output in needed for output in node.output):
                kept.append(node)
                needed.update(_reads(node))
            else:
                for output in node.output:
                    self._types.pop(output, None)
                    self._producers.pop(output, None)
        del nodes[start:]
        nodes.extend(reversed(kept))
        for node in nodes[start:]:
            self._producers.update(dict.fromkeys(filter(None, node.output), node))
        self._seen = self._counts()

    def replace_nodes(self, nodes: Sequence[NodeProto]) -> None:
        """Put these nodes, in topological order, in the place of all there are."""
        fresh = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del self.proto.graph.node[:]
        self.proto.graph.node.extend(fresh)
        self._producers.clear()
        for node in self.proto.graph.node:
            known = all(not o or o in self._types for o in node.output)
            op = None if known else self.operator_of(node)
            self._register(node, self._infer(node, op) if op else {})
        self._seen = self._counts()

    # -- what is handed out --------------------------------------------------------------------

    def fork(self) -> Graph:
        """A graph that starts as this one and goes its own way; small initializers come along.

        Large ones stay behind as types: the fork is for models whose weights live elsewhere.
        """
        bare = skeleton(self.proto)
        bare.ir_version = self.proto.ir_version
        bare.producer_name = self.proto.producer_name
        bare.metadata_props.extend(self.proto.metadata_props)
        twin = Graph.__new__(Graph)
        twin.__dict__.update(self.__dict__)
        twin.proto = bare
        twin.parameters = list(self.parameters)
        twin.names = self.names.copy()
        for field in ("_types", "_tensors", "_constants", "_interned", "_opsets"):
            setattr(twin, field, dict(getattr(self, field)))
        twin._producers = {o: n for n in bare.graph.node for o in n.output if o}
        twin._seen = twin._counts()
        return twin

    def check(self) -> None:
        """The full check of the whole model, without its weights.

        Raises:
            GraphError: The model is not valid.
        """
        self.sync()
        check_model(self.proto)

    # -- the index -----------------------------------------------------------------------------

    def sync(self) -> None:
        """Bring the index up to date with what was appended to the proto by hand.

        Raises:
            GraphError: Something that was appended is not valid.
        """
        if self._seen == self._counts():
            return
        inputs, initializers, values, nodes = self._seen
        graph = self.proto.graph
        if any(now < before for now, before in zip(self._counts(), self._seen, strict=True)):
            self._reindex()
            return
        for info in [*graph.input[inputs:], *graph.value_info[values:]]:
            self._declare(info.name, info.type)
        for tensor in graph.initializer[initializers:]:
            self._declare_initializer(tensor)
        self._opsets = {o.domain or "": o.version for o in self.proto.opset_import}
        for node in graph.node[nodes:]:
            self._admit(node)
        self._seen = self._counts()

    def _counts(self) -> tuple[int, int, int, int]:
        graph = self.proto.graph
        return len(graph.input), len(graph.initializer), len(graph.value_info), len(graph.node)

    def _reindex(self) -> None:
        """Index the whole model anew, with ONNX's inference over all of it at once."""
        graph = self.proto.graph
        for table in (self._types, self._tensors, self._constants, self._producers):
            table.clear()
        inferred = graph
        if graph.node:
            try:
                inferred = onnx.shape_inference.infer_shapes(
                    skeleton(self.proto), data_prop=True
                ).graph
            except onnx.shape_inference.InferenceError as error:
                raise GraphError(f"The base model is not valid ONNX: {error}") from error
        for info in [*inferred.value_info, *graph.output, *inferred.output, *graph.input]:
            self._declare(info.name, info.type)
        for tensor in graph.initializer:
            self._declare_initializer(tensor)
        for node in graph.node:
            self._producers.update(dict.fromkeys(filter(None, node.output), node))
            for name in (node.name, *node.output):
                self.names.take(name)
            self._note_constant(node)
        for node in graph.node:
            self._complete(node)
        self._seen = self._counts()

    def _complete(self, node: NodeProto) -> None:
        """Type what ONNX's inference of the whole model left untyped or without a rank."""
        if all(self._has_rank(output) for output in node.output if output):
            return
        op = self.operator_of(node)
        known = all(name in self._types for name in node.input if name)
        if op is None or not known:
            return
        for name, found in self._infer(node, op).items():
            if not self._has_rank(name):
                self._types[name] = found
                self._tensors.pop(name, None)

    def _has_rank(self, name: str) -> bool:
        found = self._types.get(name)
        if found is None:
            return False
        return not found.HasField("tensor_type") or found.tensor_type.HasField("shape")

    def _admit(self, node: NodeProto) -> None:
        """Check a node that was appended by hand, and index it."""
        for name in _reads(node):
            if name not in self:
                raise GraphError(
                    f"Node {node.name!r} ({node.op_type}) reads {name!r}, which no input, "
                    f"initializer or earlier node provides. {near(name, self._types)}"
                )
        for name in node.output:
            if name and name in self._producers:
                other = self._producers[name]
                raise GraphError(
                    f"Node {node.name!r} ({node.op_type}) writes {name!r}, which node "
                    f"{other.name!r} ({other.op_type}) writes already: every tensor is written once."
                )
        op = self.operator_of(node)
        if op is not None and op.schema is not None:
            context = checker.C.CheckerContext()
            context.ir_version = self.proto.ir_version
            context.opset_imports = self._opsets
            try:
                checker.check_node(node, context)
            except checker.ValidationError as error:
                raise GraphError(f"Node {node.name!r} ({node.op_type}): {error}") from error
        self._register(node, self._infer(node, op) if op is not None else {})
        self.names.take(node.name)

    def _infer(self, node: NodeProto, op: Operator) -> dict[str, TypeProto]:
        types = {name: self.type_proto(name) for name in _reads(node)}
        if op.schema is None:
            return microsoft.infer_outputs(node, types)
        constants = {n: self._constants[n] for n in node.input if n in self._constants}
        opsets = [helper.make_opsetid(d, v) for d, v in self._opsets.items()]
        return infer_outputs(op, node, types, constants, opsets, self.proto.ir_version)

    def _register(self, node: NodeProto, types: Mapping[str, TypeProto]) -> None:
        for name in filter(None, node.output):
            self._producers[name] = node
            self.names.take(name)
            if name in types:
                self._declare(name, types[name])
        self._note_constant(node)

    def _note_constant(self, node: NodeProto) -> None:
        if node.op_type == "Constant" and not node.domain and node.attribute[0].HasField("t"):
            if is_small(node.attribute[0].t):
                self._constants[node.output[0]] = node.attribute[0].t

    def _declare(self, name: str, proto: TypeProto) -> None:
        self.names.take(name)
        if proto.WhichOneof("value") is not None:
            self._types[name] = proto
            self._tensors.pop(name, None)

    def _declare_initializer(self, tensor: TensorProto) -> None:
        self._declare(tensor.name, helper.make_tensor_type_proto(tensor.data_type, tensor.dims))
        if is_small(tensor):
            self._constants[tensor.name] = tensor

    def _add_initializer(self, array: np.ndarray, name: str) -> None:
        self.sync()
        elem_type_of(array.dtype)
        self.proto.graph.initializer.append(numpy_helper.from_array(array, name))
        self._declare_initializer(self.proto.graph.initializer[-1])
        self._seen = self._counts()

    def _output_type(self, name: str) -> TypeProto:
        if name not in self:
            outputs = [o for n in self.proto.graph.node for o in n.output]
            raise UnknownNameError(
                f"The provided name {str(name)} is not a graph value info or a graph output. "
                f"{near(name, outputs)}"
            )
        return self.type_proto(name)

    def _import(self, domain: str, version: int) -> None:
        self.proto.opset_import.append(helper.make_opsetid(domain, version))
        self._opsets[domain] = version


def _reads(node: NodeProto) -> set[str]:
    """The tensors that a node reads, those of the outer scope of its subgraphs included."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            inner = {v.name for v in graph.input} | {t.name for t in graph.initializer}
            for child in graph.node:
                names |= _reads(child) - inner
                inner.update(child.output)
            names |= {o.name for o in graph.output} - inner
    return names


def _output_names(node: str, op: Operator, count: int) -> list[str]:
    if count == 1:
        return [node]
    last = len(op.outputs) - 1
    return [
        f"{node}.{i}" if op.outputs[min(i, last)].variadic else f"{node}.{op.outputs[i].name}"
        for i in range(count)
    ]


def _constant_name(array: np.ndarray, hint: str) -> str:
    """Scalars and short vectors carry their value in their name: `1.0`, `[0, 2]`."""
    if array.size <= 4 and array.dtype.kind in "fib":
        return f"{hint}/{array.dtype.name}/{array.tolist()}".replace(" ", "")
    return f"{hint}/{array.dtype.name}"


def _attribute(op: Operator, name: str, value: Any) -> onnx.AttributeProto:
    if op.schema is None:
        return helper.make_attribute(name, value)
    kind = onnx.AttributeProto.AttributeType.Value(op.schema.attributes[name].type.name)
    return helper.make_attribute(name, value, attr_type=kind)
