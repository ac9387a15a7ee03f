"""ONNX's checker on a model without its weights.

A check of the whole model costs what its weights weigh; without them it costs what its nodes cost.
"""

from __future__ import annotations

import warnings
from collections.abc import Container, Mapping
from itertools import compress
from operator import not_

import onnx
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper

from blockdsl.errors import BlockWarning, GraphError
from blockdsl.graph import microsoft, schema
from blockdsl.graph.declarations import remove_inner_shapes
from blockdsl.graph.schema import MICROSOFT
from blockdsl.graph.walk import all_nodes, reads, replace_items

Types = Mapping[str, TypeProto]

_SMALL = 1024
"""Bytes up to which an initializer stays: shapes, axes and scalars steer shape inference."""


def is_small(tensor: TensorProto) -> bool:
    """Whether an initializer is small enough to be carried around as a value."""
    if tensor.data_location == TensorProto.EXTERNAL:
        return False
    elements = 1
    for dim in tensor.dims:
        elements *= dim
    return elements * 4 <= _SMALL


def skeleton(model: ModelProto) -> ModelProto:
    """A copy of a model in which large initializers are graph inputs of the same type.

    Bodies and functions declare no shapes in it: runtimes ignore wrong ones, inference does not.
    The time and memory it takes do not depend on the weights.
    """
    large = frozenset(t.name for t in model.graph.initializer if not is_small(t))
    bare = lift_initializers(model, large)
    bare.ir_version = max(model.ir_version, 4)
    _name_domains(bare)
    remove_inner_shapes(bare)
    return bare


def _name_domains(model: ModelProto) -> None:
    """Give the operators that ONNX Runtime writes without a domain the one that they belong to.

    Onnx, which knows nothing of them, would take them for mistakes.
    """
    opsets = {o.domain: o.version for o in model.opset_import}
    moved = [
        node
        for node in model.graph.node
        if node.op_type in microsoft.DEFAULT_DOMAIN
        and not node.domain
        and schema.operator(node.op_type, opsets.get("", 0)) is None
    ]
    for node in moved:
        node.domain = MICROSOFT
    if moved and MICROSOFT not in opsets:
        model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))


def lift_initializers(model: ModelProto, names: frozenset[str]) -> ModelProto:
    """A copy of a model in which some initializers are graph inputs, after the others.

    An initializer that is listed as an input too, as IR versions before 4 do, is one or the other
    in the copy.
    """
    copy = ModelProto(
        ir_version=max(model.ir_version, 4),
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        model_version=model.model_version,
        doc_string=model.doc_string,
    )
    for field in ("opset_import", "functions", "metadata_props"):
        getattr(copy, field).extend(getattr(model, field))
    graph, source = copy.graph, model.graph
    graph.name = source.name or "graph"
    for field in ("node", "output", "value_info", "sparse_initializer", "quantization_annotation"):
        getattr(graph, field).extend(getattr(source, field))
    own = {tensor.name for tensor in source.initializer}
    graph.input.extend(value for value in source.input if value.name not in own)
    for tensor in source.initializer:
        if tensor.name in names:
            graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
        else:
            graph.initializer.append(tensor)
    return copy


def check_calls(model: ModelProto) -> None:
    """Check that no function of a model calls itself: not every onnx survives looking into one.

    Raises:
        GraphError: One does, by itself or through others.
    """
    left = {
        (f.domain, f.name, f.overload): {
            (node.domain, node.op_type, node.overload) for node in all_nodes(f.node)
        }
        for f in model.functions
    }
    while left:
        ends = [key for key, called in left.items() if called.isdisjoint(left)]
        if not ends:
            named = ", ".join(sorted("::".join(key[:2]) for key in left))
            raise GraphError(
                f"The model is not valid ONNX: its functions are recursive: {named}. A function "
                "calls neither itself nor one that calls it."
            )
        for key in ends:
            del left[key]


def check_node(node: NodeProto, ir_version: int, opsets: Mapping[str, int]) -> None:
    """Check that a node has the form that its operator has in the opsets of a model.

    Raises:
        GraphError: It has not, with the checker's reason.
    """
    context = onnx.checker.C.CheckerContext()
    context.ir_version = ir_version
    context.opset_imports = dict(opsets)
    try:
        onnx.checker.check_node(node, context)
    except onnx.checker.ValidationError as error:
        raise GraphError(f"Node {node.name!r} ({node.op_type}): {error}") from error


def check_model(model: ModelProto, what: str = "model") -> None:
    """The full check: structure, operators, types and shapes of every node.

    Args:
        model: The model.
        what: What to call it in an error message.

    Raises:
        GraphError: The model is not valid, with the checker's reason.
    """
    _check(skeleton(model), what)


def check_added(model: ModelProto, opened: Container[str], types: Types, what: str) -> None:
    """As `check_model`, but a fault of the model that was opened is a warning: runtimes decide.

    Args:
        model: The model.
        opened: The tensors that its nodes computed when it was opened.
        types: The types of its tensors.
        what: What to call it in an error message.

    Raises:
        GraphError: The nodes that were added are not valid, with the checker's reason.
    """
    whole = skeleton(model)
    try:
        _check(whole, what)
    except GraphError as error:
        _check(_without(whole, opened, types), what)
        warnings.warn(
            f"ONNX's checker objects to the model that was opened, and ONNX Runtime decides "
            f"whether it runs: {error.__cause__}",
            BlockWarning,
            stacklevel=3,
        )


def _check(bare: ModelProto, what: str) -> None:
    try:
        onnx.checker.check_model(bare, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise GraphError(f"The {what} is not valid ONNX: {error}") from error


def _without(bare: ModelProto, opened: Container[str], types: Types) -> ModelProto:
    """Put one node that the checker does not know in the place of those that were opened."""
    added = ModelProto()
    added.CopyFrom(bare)
    graph = added.graph
    given = [any(o in opened for o in node.output) for node in graph.node]
    called = {(n.domain, n.op_type) for n in all_nodes(compress(graph.node, given))}
    functions = [f for f in added.functions if (f.domain, f.name) not in called]
    replace_items(added.functions, functions)
    replace_items(graph.node, compress(graph.node, map(not_, given)))
    replace_items(graph.input, [i for i in graph.input if i.type.tensor_type.HasField("shape")])
    provided = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    provided.update(*(node.output for node in graph.node))
    needed = {o.name for o in graph.output}.union(*map(reads, graph.node)) - provided
    del graph.value_info[:]
    graph.value_info.extend(
        helper.make_value_info(n, types[n]) for n in sorted(needed) if n in types
    )
    opening = helper.make_node("Opened", [], sorted(needed), domain="blockdsl")
    graph.node.insert(0, opening)
    added.opset_import.append(helper.make_opsetid("blockdsl", 1))
    return added
