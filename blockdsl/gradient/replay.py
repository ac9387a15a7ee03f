"""Bodies of `If`, `Loop` and `Scan` run again, with what they drew in the forward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, helper

from blockdsl.gradient.draws import returned
from blockdsl.gradient.functions import renamed, spliced
from blockdsl.graph import activate, current, nested, op
from blockdsl.graph.control import close, slice_of
from blockdsl.graph.model import Graph
from blockdsl.graph.portable import where
from blockdsl.graph.random import is_random
from blockdsl.graph.tensor import TensorType
from blockdsl.graph.value import Value
from blockdsl.graph.walk import subgraphs

Draws = Mapping[str, Value]
"""What was drawn, by the name that it has in the body."""


def replayed(graph: Graph, body: GraphProto, inputs: Sequence[str], draws: Draws) -> list[Value]:
    """Append a copy of a body to the current graph, in which nothing is drawn.

    Args:
        graph: The current graph; it sees what the body sees of the scope around it.
        body: The body.
        inputs: What takes the place of the body's inputs.
        draws: What takes the place of what it draws.

    Returns:
        The body's outputs in the graph.
    """

    def replace(node: NodeProto, names: dict[str, str]) -> bool:
        if draws and is_random(node):
            graph.sync()
            given: list[Any] = [
                graph.value(names.get(name, name)) if name else None for name in node.input
            ]
            if node.op_type == "Dropout":
                y, mask = _dropped(draws[node.output[1]], *given)
                names |= dict(zip(node.output, (y, mask), strict=True))
            else:
                names[node.output[0]] = _as_drawn(node, draws[node.output[0]], given)
            return True
        if any(node.output[i] in draws for b in subgraphs(node) for _, i in returned(node, b)):
            graph.sync()
            kept = [draws.get(name) for name in node.output]
            made = _with_bodies(graph, renamed(node, names), kept)
            names |= dict(zip(node.output, made, strict=True))
            return True
        return False

    return spliced(graph, body, inputs, replace)


def kept_scale(ratio: Value | None, like: Value) -> Value:
    """1 / (1 - ratio), and 0 where everything is dropped."""
    known = np.array(0.5) if ratio is None else ratio.constant
    if known is None and ratio is not None:
        kept = 1 - ratio.cast(like.elem_type)
        return where(kept > 0, 1 / kept, 0)
    rest = 1 - float(np.asarray(known))
    return current().add_constant(np.array(1 / rest if rest > 0 else 0, like.dtype))


def _dropped(mask: Value, x: Value, ratio: Value | None, training: Value) -> tuple[Value, Value]:
    """The outputs of dropout for a mask."""
    mask = _typed(mask, x.shape)
    scale = kept_scale(ratio, x)
    if training.constant is None:
        scale = where(training, scale, 1)
    elif not training.constant:
        return x, mask
    return x * (mask.cast(x.elem_type) * scale), mask


def _as_drawn(node: NodeProto, draw: Value, given: Sequence[Value | None]) -> Value:
    """A draw, with the shape that the operator would give it."""
    sizes = next((list(a.ints) for a in node.attribute if a.name == "shape"), None)
    like = given[0] if given else None
    if sizes is None and like is not None:
        sizes = [None, None] if node.op_type == "Multinomial" else list(like.shape)
    return _typed(draw, sizes or ())


def _typed(draw: Value, shape: Sequence[Any]) -> Value:
    """A draw that is known to have a shape: what a node with branches returns has none."""
    copy: Value = op.Identity(draw)
    copy.graph.annotate(copy, TensorType(draw.elem_type, tuple(shape)))
    return copy


def _with_bodies(graph: Graph, node: NodeProto, drawn: Sequence[Value | None]) -> Sequence[Value]:
    """A node with bodies that draw, run again: the outputs of another that draws nothing."""
    given = [graph.value(name) if name else None for name in node.input]
    types = {name: graph.type_proto(name) for name in node.input if name}
    settings = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    keys = ("then_branch", "else_branch") if node.op_type == "If" else ("body",)
    slices: list[Value] = []
    for key, (body, kinds) in zip(keys, nested.entering(node, types, graph.opset()), strict=True):
        kept = {name: draw for name, i in returned(node, body) if (draw := drawn[i]) is not None}
        with graph.body(body.name) as child, activate(child):
            inputs = [
                child.add_body_input(info.name, kind or info.type)
                for info, kind in zip(body.input, kinds, strict=True)
            ]
            if node.op_type == "Loop":
                kept = {n: op.Gather(d, inputs[0], axis=0) for n, d in kept.items()}
            elif node.op_type == "Scan":
                slices = list(kept.values())
                kept = {n: slice_of(child, "draw", d) for n, d in kept.items()}
            close(child, replayed(child, body, inputs, kept))
        settings[key] = child.proto.graph
    if slices:
        settings["num_scan_inputs"] += len(slices)
        for key in ("scan_input_axes", "scan_input_directions"):
            if key in settings:
                settings[key] = [*settings[key], *[0] * len(slices)]
    made = getattr(op, node.op_type)(*given, *slices, **settings, outputs=len(node.output))
    return list(made)
