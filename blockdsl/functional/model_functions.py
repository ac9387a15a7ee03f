"""Model-local functions for operators that only onnxruntime-training has kernels for.

The on-device training API requires a few operators of `com.microsoft`. A model that uses them
carries a function of the same domain and name for each: onnxruntime-training runs its own kernel
and ignores the function; every other runtime inlines the function. One file serves both.

A function is traced from a Python function of Values, registered with `model_function`. It is
traced for the calls in one model: their attributes are baked into it, and it has the outputs that
the calls declare, because runtimes refuse a call that omits outputs of its function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    helper,
)

from blockdsl.errors import GraphError
from blockdsl.graph import activate
from blockdsl.graph.control import close
from blockdsl.graph.microsoft import OPERATORS
from blockdsl.graph.model import Graph
from blockdsl.graph.schema import MICROSOFT
from blockdsl.graph.walk import opset_of

Traced = TypeVar("Traced", bound=Callable[..., Any])

FLOAT = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
"""A float32 tensor of any shape."""

FLOATS = helper.make_sequence_type_proto(FLOAT)
"""A sequence of float32 tensors."""

FLAG = helper.make_tensor_type_proto(TensorProto.BOOL, [1])
"""A boolean vector of one element."""


@dataclass(frozen=True)
class _ModelFunction:
    trace: Callable[..., Any]
    input_types: Sequence[TypeProto]
    since_opset: int

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the operator and their defaults."""
        parameters = inspect.signature(self.trace).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


_FUNCTIONS: dict[str, _ModelFunction] = {}


def model_function(
    op_type: str, *input_types: TypeProto, since_opset: int = 1
) -> Callable[[Traced], Traced]:
    """Register the Python function that an operator of `com.microsoft` is traced from.

    Args:
        op_type: The operator.
        *input_types: Types of its inputs; the last one repeats for a variadic operator.
        since_opset: The first opset in which the function can be written.

    Returns:
        A decorator that returns the function unchanged. The function takes the operator's inputs,
        None for an optional one that is omitted, and its attributes as keyword-only arguments, and
        returns the operator's outputs.
    """

    def register(trace: Traced) -> Traced:
        _FUNCTIONS[op_type] = _ModelFunction(trace, input_types, since_opset)
        return trace

    return register


def functions_for(model: ModelProto) -> list[FunctionProto]:
    """Return the functions that a model needs where the training operators have no kernels.

    Args:
        model: The model. Below opset 13 optimizers get no function, because loops cannot carry
            sequences there: such a model runs in onnxruntime-training alone.

    Returns:
        A function for each training operator that the model calls and has no function for.

    Raises:
        GraphError: Calls of one operator differ in their attributes or, if it is variadic, in the
            number of their inputs.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base() as handle:
        ...     x = blockdsl.input("x", shape=(2,))
        ...     norm = blockdsl.op.microsoft.ReduceAllL2(x, x)
        >>> [(f.domain, f.name) for f in functions_for(handle.model)]
        [('com.microsoft', 'ReduceAllL2')]
    """
    opset = opset_of(model) or 1
    present = {f.name for f in model.functions if f.domain == MICROSOFT}
    calls: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        if node.domain == MICROSOFT and node.op_type in _FUNCTIONS.keys() - present:
            calls.setdefault(node.op_type, []).append(node)
    return [
        _traced(name, nodes, opset)
        for name, nodes in calls.items()
        if opset >= _FUNCTIONS[name].since_opset
    ]


def _traced(op_type: str, calls: Sequence[NodeProto], opset: int) -> FunctionProto:
    definition, operator = _FUNCTIONS[op_type], OPERATORS[op_type]
    attributes = _common_attributes(op_type, calls)
    input_count = _input_count(op_type, calls)
    graph = Graph(ModelProto(opset_import=[helper.make_opsetid("", opset)]))
    with activate(graph):
        inputs = []
        for i in range(input_count):
            names, types = operator.input_names, definition.input_types
            name = f"{names[-1]}{i}" if operator.inputs[-1].variadic else names[i]
            inputs.append(graph.add_body_input(name, types[min(i, len(types) - 1)]))
        results = definition.trace(*inputs, **attributes)
        results = results if isinstance(results, tuple) else (results,)
        close(graph, results[: max(len(call.output) for call in calls)])
    outputs = [parameter.name for parameter in operator.outputs][: len(graph.proto.graph.output)]
    graph.rename(dict(zip((info.name for info in graph.proto.graph.output), outputs, strict=True)))
    return helper.make_function(
        MICROSOFT,
        op_type,
        list(inputs),
        outputs,
        _without_initializers(graph.proto.graph),
        [helper.make_opsetid("", opset)],
        attribute_protos=[
            helper.make_attribute(name, default) for name, default in definition.attributes.items()
        ],
    )


def _common_attributes(op_type: str, calls: Sequence[NodeProto]) -> dict[str, Any]:
    attributes = [{a.name: helper.get_attribute_value(a) for a in call.attribute} for call in calls]
    if any(other != attributes[0] for other in attributes):
        raise GraphError(
            f"The model calls {op_type} with different attributes: {attributes}. Its function is "
            f"written for one set of attributes: use the same in every call."
        )
    return attributes[0]


def _input_count(op_type: str, calls: Sequence[NodeProto]) -> int:
    counts = {len(call.input) for call in calls}
    if OPERATORS[op_type].inputs[-1].variadic and len(counts) > 1:
        raise GraphError(
            f"The model calls {op_type} with {sorted(counts)} inputs, and a function has a fixed "
            f"number. Write the norm with ReduceSumSquare, Sum and Sqrt instead."
        )
    return max(counts)


def _without_initializers(graph: GraphProto) -> list[NodeProto]:
    """Return the nodes of a graph, its initializers and those of its bodies as Constant nodes."""
    constants = [helper.make_node("Constant", [], [t.name], value=t) for t in graph.initializer]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                nodes = _without_initializers(attribute.g)
                del attribute.g.initializer[:], attribute.g.node[:]
                attribute.g.node.extend(nodes)
    return [*constants, *graph.node]
