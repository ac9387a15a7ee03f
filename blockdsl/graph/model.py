"""The model under construction: a live `onnx.ModelProto` that blocks append to."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from blockdsl.errors import GraphError, OpError, UnknownNameError, near
from blockdsl.graph.check import check_added, lift_initializers
from blockdsl.graph.completion import has_rank
from blockdsl.graph.naming import constant_name
from blockdsl.graph.rewriting import Rewritable
from blockdsl.graph.schema import Operator, attribute_kind
from blockdsl.graph.tensor import Dim, TensorType, elem_type_of
from blockdsl.graph.value import Value
from blockdsl.graph.walk import reads


class Graph(Rewritable):
    """A model that grows.

    Args:
        proto: The model; the graph owns it and changes it.
        path: The file it came from, which external data is relative to.
    """

    def __init__(self, proto: ModelProto, path: str | os.PathLike[str] | None = None) -> None:
        self.parent: Graph | None = None
        """The graph around this one, if it is the body of a loop or branch."""
        super().__init__(proto)
        self.path = path
        self.opened_with: frozenset[str] = frozenset()
        """The tensors that the model had when the user opened it, before any block was built."""
        self.sources: dict[str, str] = {}
        """Of a body: the tensor around it that an input starts from, or is a slice of."""
        self._annotated: list[str] = []
        """The tensors whose rank follows from no inference."""
        self.owned: dict[str, str] = {}
        """The parameters and buffers of blocks, by the scope of the block and their name."""

    @property
    def own_producers(self) -> Mapping[str, NodeProto]:
        """The nodes of this graph alone, without those around it, by what they write."""
        found: Any = self._producers
        own: Mapping[str, NodeProto] = found.maps[0] if self.parent else found
        return own

    @property
    def scopes(self) -> list[Graph]:
        """The graphs whose tensors are visible here: the model, then bodies down to this one."""
        return [self] if self.parent is None else [*self.parent.scopes, self]

    def function_of(self, node: NodeProto) -> FunctionProto | None:
        """The model's own function that a node calls, from the body of a loop or branch too."""
        return super().function_of(node) if self.parent is None else self.parent.function_of(node)

    def make_variables(self, names: Iterable[str]) -> None:
        """Forget the values of tensors that are to be changed, and of all that depends on them."""
        varying = set(names)
        for scope in self.scopes:
            for node in scope.proto.graph.node:
                if node.op_type not in ("Shape", "Size") and not varying.isdisjoint(reads(node)):
                    varying.update(filter(None, node.output))
            for name in varying & scope._constants.keys():
                scope._constants.pop(name, None)

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
        node.output.extend(
            _output_names(name, op, outputs) if isinstance(outputs, int) else outputs
        )
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
        small = array.nbytes <= 256
        key = (array.dtype, array.shape, array.tobytes() if small else b"")
        if small and key in self._interned:
            return self.value(self._interned[key])
        with self.names.root():
            name = self.names.unique(constant_name(array, hint))
        self._append_initializer(_tensor(array), name)
        self.constants_made.add(name)
        if small:
            self._interned[key] = name
        return self.value(name)

    def add_initializer(self, array: np.ndarray, name: str) -> Value:
        """Add an initializer of the model, from inside a body too."""
        return self.add_tensor(_tensor(array), name)

    def add_tensor(self, tensor: TensorProto, name: str) -> Value:
        """Add an initializer of the model, as `add_initializer`, under another name."""
        name = self.names.unique(name)
        self.scopes[0]._append_initializer(tensor, name)
        return self.value(name)

    def add_input(self, name: str, elem_type: int, shape: Sequence[Dim] | None) -> Value:
        """A graph input.

        Raises:
            GraphError: The name is taken.
        """
        self.sync()
        if not isinstance(name, str) or not name:
            raise GraphError(f"The name of an input is a text, not {name!r}.")
        if name in self:
            raise GraphError(
                f"The model already has a tensor {name!r}: give the input another name."
            )
        info = helper.make_tensor_value_info(name, elem_type, shape)
        self.proto.graph.input.append(info)
        self._declare_input(info)
        self._seen = self._counts()
        return self.value(name)

    def add_body_input(self, hint: str, proto: TypeProto, source: str | None = None) -> Value:
        """An input of a body, of any type, under a name of its own.

        Args:
            hint: What to name it after.
            proto: Its type.
            source: The tensor around the body that it starts from, or is a slice of.
        """
        self.sync()
        name = self.names.unique(hint)
        if source is not None:
            self.sources[name] = source
        self.proto.graph.input.append(helper.make_value_info(name, proto))
        self._declare(name, proto)
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
        if not has_rank(self._types.get(name)):
            self._annotated.append(name)
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
        self._seen = self._counts()
        return self.value(name)

    def declare_output(self, node: NodeProto, index: int) -> Value:
        """An optional output of a node, declared on it if it is not yet."""
        while len(node.output) <= index:
            node.output.append("")
        if not node.output[index]:
            op = self.operator_of(node)
            assert op is not None
            node.output[index] = self.names.unique(f"{node.name}.{op.outputs[index].name}")
            written = {*filter(None, node.output)}
            owner = next((s for s in self.scopes if written & s.own_producers.keys()), self)
            owner._register(node, owner._infer(node, op))
        return self.value(node.output[index])

    # -- what is handed out --------------------------------------------------------------------

    def fork(self, lifted: Iterable[str] = ()) -> Graph:
        """A graph that starts as this one and goes its own way.

        Args:
            lifted: Initializers that become graph inputs of the fork, after the inputs there are
                and in the order of the initializers: their values stay behind.

        Returns:
            The fork.
        """
        twin = Graph.__new__(Graph)
        twin.__dict__.update(self.__dict__)
        twin.proto = lift_initializers(self.proto, frozenset(lifted))
        twin._annotated = list(self._annotated)
        twin.names = self.names.copy()
        for field in ("_types", "_tensors", "_interned", "_opsets", "owned"):
            setattr(twin, field, dict(getattr(self, field)))
        twin._given = set(self._given)
        twin._constants = {n: t for n, t in self._constants.items() if n not in lifted}
        twin._producers = {o: n for n in twin.proto.graph.node for o in n.output if o}
        twin._seen = twin._counts()
        return twin

    @contextmanager
    def body(self, name: str) -> Iterator[Graph]:
        """A graph inside this one, for the body of a `Scan`, `Loop` or `If`.

        What is built while it is open goes into it; it sees the tensors of the graphs around it,
        and its names are unique among theirs. Its `proto.graph` is the body once it is closed.
        """
        self.sync()
        child = Graph.__new__(Graph)
        child.__dict__.update(self.__dict__)
        child.parent, child.sources, child._annotated = self, {}, []
        child.proto = ModelProto(ir_version=self.proto.ir_version)
        child.proto.opset_import.extend(self.proto.opset_import)
        child.proto.graph.name = self.names.unique(name)
        for field in ("_types", "_tensors", "_constants", "_producers"):
            setattr(child, field, ChainMap({}, getattr(self, field)))
        child._interned, child._given = {}, set()
        child._seen = child._counts()
        child._body = child.proto.graph.name
        yield child

    def replace_with(self, other: Graph) -> None:
        """Go on as another graph: the live model becomes a copy of that one's model."""
        proto = self.proto
        proto.CopyFrom(other.proto)
        self.__dict__.update(other.__dict__)
        self.proto = proto
        self._producers = {o: n for n in proto.graph.node for o in n.output if o}
        self._seen = self._counts()

    def with_types(self) -> ModelProto:
        """A copy of the model that says what is known of the types of all tensors."""
        self.sync()
        model = ModelProto()
        model.CopyFrom(self.proto)
        graph = model.graph
        said = {value.name for value in (*graph.input, *graph.output, *graph.value_info)}
        graph.value_info.extend(
            helper.make_value_info(name, self._types[name])
            for name in self._producers
            if name in self._types and name not in said
        )
        return model

    def declare_types(self) -> None:
        """Write the types that no inference finds into the model, for whoever opens it."""
        graph = self.proto.graph
        declared = {info.name for info in (*graph.output, *graph.value_info)}
        for name in dict.fromkeys(self._annotated):
            if name in self._producers and name not in declared:
                graph.value_info.append(helper.make_value_info(name, self._types[name]))
        self._annotated.clear()
        self._seen = self._counts()

    def check(self, what: str = "model") -> None:
        """The full check of the whole model, without its weights.

        Args:
            what: What to call the model in an error message.

        Raises:
            GraphError: The model is not valid.
        """
        self.sync()
        self.declare_types()
        check_added(self.proto, self._opened, self._types, what)

    def _append_initializer(self, tensor: TensorProto, name: str) -> None:
        self.sync()
        self.proto.graph.initializer.append(tensor)
        self.proto.graph.initializer[-1].name = name
        self._declare_initializer(self.proto.graph.initializer[-1])
        self._seen = self._counts()

    def _output_type(self, name: str) -> TypeProto:
        if name not in self and self.is_inside(name):
            raise self.unknown(name)
        if name not in self:
            outputs = [o for n in self.proto.graph.node for o in n.output]
            raise UnknownNameError(
                f"The provided name {name!s} is not a graph value info or a graph output. "
                f"{near(name, outputs)}"
            )
        return self.type_proto(name)

    def _import(self, domain: str, version: int) -> None:
        for scope in self.scopes:
            scope.proto.opset_import.append(helper.make_opsetid(domain, version))
            scope._opsets[domain] = version


def _tensor(array: np.ndarray) -> TensorProto:
    array = np.asarray(array)
    elem_type_of(array.dtype)
    return numpy_helper.from_array(array)


def _output_names(node: str, op: Operator, count: int) -> list[str]:
    if count == 1:
        return [node]
    last = len(op.outputs) - 1
    return [
        f"{node}.{i}" if op.outputs[min(i, last)].variadic else f"{node}.{op.outputs[i].name}"
        for i in range(count)
    ]


def _attribute(op: Operator, name: str, value: Any) -> onnx.AttributeProto:
    kind = attribute_kind(op, name)
    if not kind:
        return helper.make_attribute(name, value)
    try:
        return helper.make_attribute(
            name, value, attr_type=onnx.AttributeProto.AttributeType.Value(kind)
        )
    except (TypeError, ValueError, AssertionError) as error:
        raise OpError(f"{op} takes {kind} for {name!r}, not {value!r}.") from error
