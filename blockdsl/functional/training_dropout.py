"""Dropout that trains before opset 12, where the operator cannot be told to."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
from onnx import NodeProto, TensorProto, helper

from blockdsl.errors import BlockWarning
from blockdsl.graph.layout import DROPOUT_NOISE
from blockdsl.graph.model import Graph
from blockdsl.graph.walk import all_nodes

_RATIO = 0.5  # the operator's default
_FIRST_OF_BOOLEAN_MASKS = 10


def spell_out_dropout(graph: Graph) -> None:
    """Put its mathematics in the place of Dropout, whose kernels pass their input through.

    `y = x (u >= ratio) / (1 - ratio)` for a uniform random u. From opset 12 on the input
    `training_mode` tells the operator to train.
    """
    nodes = list(graph.proto.graph.node)
    outside = [node for node in nodes if _is_dropout(node)]
    inside = len(list(filter(_is_dropout, all_nodes(nodes)))) - len(outside)
    if inside:
        warnings.warn(
            f"{inside} Dropout in the bodies of loops or branches drops nothing at opset "
            f"{graph.opset()}. Use a model of opset 12 or newer.",
            BlockWarning,
            stacklevel=5,
        )
    if outside:
        parts = [_parts(graph, node) if _is_dropout(node) else [node] for node in nodes]
        graph.replace_nodes([node for part in parts for node in part])


def _is_dropout(node: NodeProto) -> bool:
    return node.op_type == "Dropout" and node.domain in ("", "ai.onnx")


def _parts(graph: Graph, node: NodeProto) -> Iterable[NodeProto]:
    data, (output, *masks) = node.input[0], node.output
    kind = graph.type_of(data)
    ratio = next((a.f for a in node.attribute if a.name == "ratio"), _RATIO)
    scale = 1 / (1 - ratio) if ratio < 1 else 0.0
    noise, below, kept, mask, factor = (
        graph.names.unique(f"{node.name}/{name}")
        for name in ("noise", "below", "kept", "mask", "factor")
    )
    yield helper.make_node(
        "RandomUniformLike",
        [data],
        [noise],
        name=f"{node.name}/{DROPOUT_NOISE}",
        dtype=TensorProto.FLOAT,
    )
    yield helper.make_node(
        "Less", [noise, graph.add_constant(np.array(ratio, np.float32))], [below]
    )
    yield helper.make_node("Not", [below], [kept])
    yield helper.make_node("Cast", [kept], [mask], to=kind.elem_type)
    scales = graph.add_constant(np.asarray(scale, kind.dtype))
    yield helper.make_node("Mul", [mask, scales], [factor])
    yield helper.make_node("Mul", [data, factor], [output], name=node.name)
    for name in filter(None, masks):
        is_bool = graph.opset() >= _FIRST_OF_BOOLEAN_MASKS
        yield helper.make_node("Identity", [kept if is_bool else mask], [name])
