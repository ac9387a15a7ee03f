"""Integers that nodes compute from known numbers, whichever operators they use.

ONNX's reference evaluator runs such a program when the model is built. Programs are bounded: few
nodes, small tensors, no open-ended loops.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable, Mapping
from math import prod

import numpy as np
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)

from blockdsl.graph.random import is_random
from blockdsl.graph.tensor import FLOATS, TensorType, array_of, is_static
from blockdsl.graph.walk import all_nodes, reads

_NODES, _ELEMENTS, _STEPS, _SCALES = 64, 4096, 1024, 16
"""Bounds of a program: its nodes, the elements of a tensor, steps of loops, elements of a float."""

_LIMITING = {"Loop": 0, "OneHot": 1}
"""The input of an operator that decides how long it takes, or how large its output is."""


def constant_of(node: NodeProto) -> TensorProto | None:
    """Return the numbers that a `Constant` node holds, `None` if it holds none.

    Example:
        >>> from onnx import helper
        >>> array_of(constant_of(helper.make_node("Constant", [], ["x"], value_ints=[1, 2])))
        array([1, 2])
    """
    (attribute,) = node.attribute
    if attribute.name == "value":
        tensor: TensorProto = attribute.t
        return tensor
    if attribute.name in ("value_int", "value_ints"):
        ints = attribute.ints if attribute.name.endswith("s") else [attribute.i]
        dims = [len(ints)] if attribute.name.endswith("s") else []
        return TensorProto(data_type=TensorProto.INT64, dims=dims, int64_data=ints)
    if attribute.name in ("value_float", "value_floats"):
        floats = attribute.floats if attribute.name.endswith("s") else [attribute.f]
        dims = [len(floats)] if attribute.name.endswith("s") else []
        return TensorProto(data_type=TensorProto.FLOAT, dims=dims, float_data=floats)
    return None


def evaluate(
    node: NodeProto,
    producers: Mapping[str, NodeProto],
    constants: Mapping[str, TensorProto],
    types: Mapping[str, TypeProto],
    opsets: Iterable[OperatorSetIdProto],
) -> dict[str, np.ndarray]:
    """Compute the integers that a node returns, if they follow from known numbers.

    Args:
        node: The node.
        producers: The nodes that compute its inputs, and theirs.
        constants: The tensors whose values are known.
        types: The types of tensors, as far as they are known.
        opsets: The opsets of the nodes.

    Returns:
        The values of its integer outputs; none if they are not known, or not worth knowing.
    """
    names = [name for name in node.output if _is_integral(types.get(name))]
    nodes = _program(node, producers, constants, types) if names else None
    if nodes is None:
        return {}
    needed = set[str]().union(*map(reads, nodes)) & constants.keys()
    graph = GraphProto(name="program", node=nodes)
    graph.input.extend(ValueInfoProto(name=name) for name in needed)
    graph.output.extend(ValueInfoProto(name=name) for name in names)
    model = ModelProto(ir_version=8, graph=graph, opset_import=opsets)
    # Imported here and not above: it takes longer than all that onnx imports by itself.
    reference = importlib.import_module("onnx.reference")
    # A program that fails has no value: the runtime refuses it when it gets there, if it does.
    with contextlib.suppress(Exception), np.errstate(all="ignore"):
        feeds = {name: array_of(constants[name]) for name in needed}
        results = map(np.asarray, reference.ReferenceEvaluator(model).run(None, feeds))
        return {n: r for n, r in zip(names, results, strict=True) if r.size <= _ELEMENTS}
    return {}


def _is_integral(proto: TypeProto | None) -> bool:
    """Whether a type is that of integers or truth values, and of not too many."""
    tensor = None if proto is None else TensorType.of(proto)
    others = FLOATS | {TensorProto.UNDEFINED, TensorProto.STRING}
    if tensor is None or tensor.elem_type in others:
        return False
    return not is_static(tensor.shape) or _is_small(proto)


def _program(
    node: NodeProto,
    producers: Mapping[str, NodeProto],
    constants: Mapping[str, TensorProto],
    types: Mapping[str, TypeProto],
) -> list[NodeProto] | None:
    """Return the nodes that compute a node's inputs and it itself, in topological order.

    Returns:
        The nodes, `None` if they need something that is not known, or exceed the bounds.
    """
    found: dict[str, NodeProto] = {}
    pending = [node]
    while pending:
        one = pending[-1]
        names = [name for name in reads(one) if not _is_number(constants.get(name))]
        missing = [name for name in names if name not in found]
        if not missing:
            found.update(dict.fromkeys(filter(None, pending.pop().output), one))
        elif len(pending) + len(found) > _NODES:
            return None
        elif all(name in producers and _is_small(types.get(name)) for name in missing):
            pending.extend(producers[name] for name in missing)
        else:
            return None
    nodes = list({id(one): one for one in found.values()}.values())
    return nodes if all(_is_bounded(one, constants) for one in nodes) else None


def _is_number(tensor: TensorProto | None) -> bool:
    """Whether the value of a tensor may enter a program: larger floats are weights."""
    if tensor is None:
        return False
    return tensor.data_type not in FLOATS or prod(tensor.dims) <= _SCALES


def _is_small(proto: TypeProto | None) -> bool:
    """Whether a tensor has a known, small size; a sequence has none."""
    tensor = None if proto is None else TensorType.of(proto)
    if tensor is None:
        return proto is not None
    sizes = [dim for dim in tensor.shape or () if isinstance(dim, int)]
    return is_static(tensor.shape) and prod(sizes) <= _ELEMENTS


def _is_bounded(node: NodeProto, constants: Mapping[str, TensorProto]) -> bool:
    """Whether a node always returns the same, after a short time."""
    steps = 1
    for one in all_nodes([node]):
        if one.domain or is_random(one):
            return False
        if one.op_type in _LIMITING:
            limit = constants.get("".join(one.input[_LIMITING[one.op_type] :][:1]))
            if limit is None:
                return False
            steps *= int(array_of(limit).reshape(-1)[0])
    return steps <= _STEPS
