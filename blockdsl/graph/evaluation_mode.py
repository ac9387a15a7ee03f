"""Evaluation mode: dropout is off, batch normalisation uses its running statistics."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import NodeProto

from blockdsl.graph.schema import MICROSOFT
from blockdsl.graph.walk import all_nodes

NORMALISATIONS = {("", "BatchNormalization"), (MICROSOFT, "BatchNormInternal")}
"""Operators that normalise by the batch in training; the second is onnxruntime-training's own."""


def to_evaluation_mode(nodes: Iterable[NodeProto]) -> None:
    """Switch nodes to evaluation mode in place, those of nested graphs included."""
    statistics: dict[str, str] = {}  # by the updated ones, which later nodes start from
    for node in all_nodes(nodes):
        kind = (node.domain, node.op_type)
        if kind == ("", "Dropout") and len(node.input) > 2:
            node.input[2] = ""
        elif kind in NORMALISATIONS:
            node.input[3:5] = [statistics.get(name, name) for name in node.input[3:5]]
            statistics.update(zip(node.output[1:3], node.input[3:5], strict=False))
            del node.output[1:]
            for attribute in [a for a in node.attribute if a.name == "training_mode"]:
                if node.domain:  # BatchNormalization has no such attribute before opset 14
                    node.attribute.remove(attribute)
                else:
                    attribute.i = 0
            node.domain, node.op_type = "", "BatchNormalization"
