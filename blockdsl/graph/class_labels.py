"""The labels of losses over classes: which inputs they are, and which values they may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, TensorProto, helper

from blockdsl.graph.tensor import TensorType

LOSSES = frozenset({"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"})
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)
_VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


@dataclass(frozen=True)
class Classes:
    """The labels that a loss takes.

    Attributes:
        count: The number of classes; labels are 0 to `count` - 1.
        ignored: One more label that the loss takes, and ignores; None if there is none.
    """

    count: int
    ignored: int | None = None


def is_class_loss(node: NodeProto) -> bool:
    """Whether a node is a loss of scores and the indices of classes."""
    return node.op_type in LOSSES and node.domain in ("", "ai.onnx")


def ignored_label(node: NodeProto) -> int | None:
    """The label that a loss ignores."""
    return next((a.i for a in node.attribute if a.name == "ignore_index"), None)


def source_of_labels(name: str, producers: Mapping[str, NodeProto]) -> str:
    """The tensor whose elements, in whatever shape and integer type, some labels are."""
    while (node := producers.get(name)) is not None and _keeps_elements(node):
        name = node.input[0]
    return name


def fed_labels(model: ModelProto) -> dict[str, tuple[Classes, ...]]:
    """The inputs of a model that are labels, and what each loss that reads them takes.

    Left out are losses in bodies and functions, and those whose number of classes is not declared.
    """
    graph = model.graph
    producers = {name: node for node in graph.node for name in node.output}
    types = {
        v.name: TensorType.of(v.type) for v in (*graph.value_info, *graph.output, *graph.input)
    }
    types |= {t.name: TensorType(t.data_type, tuple(t.dims)) for t in graph.initializer}
    inputs = {value.name for value in graph.input}
    found: dict[str, tuple[Classes, ...]] = {}
    for node in filter(is_class_loss, graph.node):
        source = source_of_labels(node.input[1], producers)
        # The logarithms of probabilities, the second output, have the shape of the scores.
        scores = (types.get(name) for name in (node.input[0], *node.output[1:]))
        count = next(filter(None, map(class_count, scores)), None)
        if source in inputs and is_integer(types[source]) and count is not None:
            found[source] = (*found.get(source, ()), Classes(count, ignored_label(node)))
    return found


def is_integer(labels: TensorType | None) -> bool:
    """Whether labels are integers: a cast of others changes them."""
    return labels is not None and labels.dtype.kind in "iu"


def class_count(scores: TensorType | None) -> int | None:
    """The number of classes that scores are of, None where it is not known."""
    if scores is None or scores.shape is None or len(scores.shape) < 2:
        return None
    classes = scores.shape[1]
    return classes if isinstance(classes, int) else None


def _keeps_elements(node: NodeProto) -> bool:
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type == "Cast":
        return helper.get_node_attr_value(node, "to") in _INTEGERS
    return node.op_type in _VIEWS
