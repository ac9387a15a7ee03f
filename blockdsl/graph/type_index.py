"""Types, constants and producers of tensors, inferred node by node.

ONNX's inference of a node does the work. What it leaves open at the nodes with bodies and at calls
of the model's functions follows from the nodes in these.
"""

from __future__ import annotations

import copy
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from blockdsl.errors import GraphError, UnknownNameError, near
from blockdsl.graph import microsoft, nested
from blockdsl.graph.check import is_small
from blockdsl.graph.completion import has_rank
from blockdsl.graph.fold import Known, as_tensor, fold, folds, known
from blockdsl.graph.infer import infer_outputs
from blockdsl.graph.known_programs import constant_of, evaluate
from blockdsl.graph.naming import Namer
from blockdsl.graph.pool_windows import drop_doubtful_windows
from blockdsl.graph.schema import Operator
from blockdsl.graph.tensor import TensorType, array_of
from blockdsl.graph.walk import WITH_BODIES, attributes_of, bind_attributes, names_in, reads

_ASSUMPTIONS, _AFFECTED = 3, 200
"""How many undecided branches, one after the other, and tensors after them are looked at."""


class TypeIndex:
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
        self._opsets: dict[str, int] = {}
        self._imports: Sequence[OperatorSetIdProto] | None = None
        """The opsets of the function whose body this is; those of the model if it is none."""
        self._body = ""
        """The name of the graph, if it is the body of a loop or branch."""
        self._inside: dict[str, str] = {}
        """The tensors of bodies, by the name of the body: outside of it they do not exist."""
        self._siblings: Sequence[NodeProto] = ()
        """The nodes of the graph, function or body that is looked at."""
        self._assumptions = 0
        """How many branches are assumed to be taken, to see what follows."""

    def __contains__(self, name: object) -> bool:
        return name in self._types or name in self._producers

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
        drop_doubtful_windows(node, types)
        constants = {n: self._constants[n] for n in node.input if n in self._constants}
        opsets = self._imports or self.proto.opset_import
        ir_version = self.proto.ir_version
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
        called = node.domain, node.op_type, node.overload
        return next((f for f in own if (f.domain, f.name, f.overload) == called), None)

    def _infer_call(self, node: NodeProto) -> dict[str, TypeProto]:
        """The types of the outputs of a call of one of the model's functions."""
        function = self.function_of(node)
        if function is None or not all(name in self._types for name in reads(node)):
            return {}
        types = [self._types.get(name, TypeProto()) for name in node.input]
        found: Sequence[TypeProto | None] = []
        # It knows neither functions in functions nor the operators of runtimes.
        with suppress(onnx.shape_inference.InferenceError, RuntimeError):
            found = onnx.shape_inference.infer_function_output_types(
                function, types, list(node.attribute)
            )
        if not found or not all(t and t.WhichOneof("value") and has_rank(t) for t in found):
            found = self._infer_function(node, function, types)
        return {n: t for n, t in zip(node.output, found, strict=False) if n and t is not None}

    def _infer_function(
        self, node: NodeProto, function: FunctionProto, types: Sequence[TypeProto]
    ) -> list[TypeProto | None]:
        """The types of a function's outputs for a call, from its nodes."""
        inner = self._apart()
        for field in ("_types", "_tensors", "_constants", "_producers"):
            setattr(inner, field, {})
        inner._imports = function.opset_import
        inner._opsets = {
            "" if o.domain == "ai.onnx" else o.domain: o.version for o in function.opset_import
        }
        for formal, known_type in zip(function.input, types, strict=False):
            inner._declare(formal, known_type)
        for formal, actual in zip(function.input, node.input, strict=False):
            if actual in self._constants:
                inner._constants[formal] = self._constants[actual]
        values = {a.name: a for a in attributes_of(node, function)}
        inner._siblings = [NodeProto.FromString(n.SerializeToString()) for n in function.node]
        for bound in inner._siblings:
            bind_attributes(bound, values)
        for bound in inner._siblings:
            inner._register(bound, inner._infer_typed(bound))
        return [inner._types.get(name) for name in function.output]

    def _infer_through_bodies(
        self, node: NodeProto, types: Mapping[str, TypeProto], found: dict[str, TypeProto]
    ) -> None:
        """Add the outputs that ONNX left without a rank, from the nodes of the bodies."""
        branch = self.branch_of(node)
        if branch is None and all(has_rank(found.get(name)) for name in node.output if name):
            return
        entering = nested.entering(node, types, self.opset())
        if node.op_type == "Loop":
            known_types = nested.through_loop(
                node, types, partial(self._infer_body, entering[0][0])
            )
        else:
            made = [self._infer_body(*b) for b in entering]
            if branch is None and node.op_type == "If" and nested.ranks_differ(*made):
                branch = self._decide(node, made)
            known_types = nested.leaving(node, made, branch) if made else []
        for name, proto in zip(node.output, known_types, strict=False):
            unknown = branch is not None or not has_rank(found.get(name))
            if proto is not None and name and unknown:
                found[name] = proto

    def _decide(self, node: NodeProto, made: Sequence[Sequence[TypeProto | None]]) -> int | None:
        """Decide which branch an `If` takes by what reads its outputs: that takes one rank only.

        Args:
            node: The node.
            made: The types of what each branch returns, of other ranks.

        Returns:
            The branch, `None` if both fit, as far as the next nodes tell. Its condition becomes a
            constant: a run in which it is another one fails.
        """
        if self._assumptions == _ASSUMPTIONS:
            return None
        position = next((i for i, n in enumerate(self._siblings) if n.output == node.output), None)
        following = () if position is None else self._siblings[position + 1 :]
        fitting = [i for i, types in enumerate(made) if self._fits(node, types, following)]
        if len(fitting) != 1:
            return None
        self._constants[node.input[0]] = numpy_helper.from_array(np.array(not fitting[0]))
        return fitting[0]

    def _fits(
        self, node: NodeProto, types: Sequence[TypeProto | None], following: Sequence[NodeProto]
    ) -> bool:
        """Whether the nodes that read a node's outputs take such types, and those after them."""
        inner = self._within()
        inner._assumptions += 1
        inner._register(node, {n: t for n, t in zip(node.output, types, strict=True) if t})
        affected = set(node.output)
        for child in following:
            if not affected.isdisjoint(reads(child)):
                affected.update(filter(None, child.output))
            elif all(name in inner._types for name in child.output if name):
                continue
            if len(affected) > _AFFECTED:
                break
            try:
                inner._register(child, inner._infer_typed(child))
            except GraphError:
                return False
        return True

    def _within(self) -> Any:
        """An index of its own that sees what this one knows, and keeps what it learns to itself."""
        inner = self._apart()
        for field in ("_types", "_tensors", "_constants", "_producers"):
            setattr(inner, field, ChainMap({}, getattr(self, field)))
        return inner

    def _apart(self) -> Any:
        """An index of its own, with the same tables, for nodes that are looked at on the side."""
        inner: Any = copy.copy(self)
        inner.names, inner._given, inner._inside = Namer(), set(), {}
        return inner

    def _infer_body(
        self, body: GraphProto, inputs: Sequence[TypeProto | None]
    ) -> list[TypeProto | None]:
        """The types of a body's outputs."""
        inner = self._within()
        inner._siblings = body.node
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
        if not all(name in self._constants for name in node.output):
            self._note_computed(node)

    def _note_given(self, node: NodeProto) -> None:
        """Note a constant that a node holds."""
        if node.op_type == "Constant" and not node.domain:
            value = constant_of(node)
            if value is not None and is_small(value):
                self._constants[node.output[0]] = value
        elif node.op_type == "Identity" and node.input[0] in self._constants:
            self._constants[node.output[0]] = self._constants[node.input[0]]

    def _note_computed(self, node: NodeProto) -> None:
        """Note the integers that a node computes, if all of them are known: a static shape, say."""
        inputs: dict[str, Known] = {}
        for name in node.input if folds(node) else ():
            array = self.constant_value(name)
            value = None if array is None else known(array)
            if value is not None:
                inputs[name] = value
        found = fold(node, inputs, self._types)
        values = self._evaluate(node) if found is None else {node.output[0]: found}
        for name, entries in values.items():
            tensor = as_tensor(entries, self._types.get(name))
            if tensor is not None:
                self._constants[name] = tensor

    def _evaluate(self, node: NodeProto) -> dict[str, np.ndarray]:
        """The integers that a node computes from known numbers, by any operators."""
        opsets = self._imports or self.proto.opset_import
        return evaluate(node, self._producers, self._constants, self._types, opsets)

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
