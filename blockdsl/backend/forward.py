"""The forward model inside a training model, as it is evaluated: no gradients, no dropout."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from blockdsl.backend.walk import reads
from blockdsl.errors import EngineError
from blockdsl.graph.layout import BUFFER, RESET
from blockdsl.graph.schema import MICROSOFT
from blockdsl.graph.walk import all_nodes

_NORMALISATIONS = {("", "BatchNormalization"), (MICROSOFT, "BatchNormInternal")}


def is_training_model(graph: GraphProto) -> bool:
    """Whether a graph accumulates gradients."""
    return any(value.name == RESET for value in graph.input)


def forward_model(model: ModelProto, parameters: Collection[str]) -> ModelProto:
    """Cut the gradients off a training model and turn the rest to evaluation, in place.

    Args:
        model: The training model; it is taken over.
        parameters: The names of the parameters.

    Returns:
        The model: what the user's outputs need and whatever else no gradient does.

    Raises:
        EngineError: Batch normalisation is spelled out, as training before opset 14 needs it.
    """
    graph = model.graph
    accumulators = [node for node in graph.node if _is_accumulator(node)]
    flags = {name for node in accumulators for name in node.output}
    outputs = [value for value in graph.output if value.name not in flags]
    _check_statistics(graph, accumulators, parameters)
    forward = _ancestors(graph, [value.name for value in outputs])
    backward = _ancestors(graph, [name for node in accumulators for name in node.input])
    kept = [
        node
        for index, node in enumerate(graph.node)
        if not _is_accumulator(node) and (index in forward or index not in backward)
    ]
    for node in all_nodes(kept):
        _evaluate(node)
    inputs = [v for v in graph.input if v.name != RESET and not v.name.endswith(BUFFER)]
    for container, values in ((graph.node, kept), (graph.output, outputs), (graph.input, inputs)):
        copies = list(values)
        del container[:]
        container.extend(copies)
    return model


def _is_accumulator(node: NodeProto) -> bool:
    return node.op_type == "InPlaceAccumulatorV2" and node.domain == MICROSOFT


def _ancestors(graph: GraphProto, names: Iterable[str]) -> set[int]:
    """The indices of the nodes that some tensors depend on."""
    wanted, found = set(names), set()
    for index in reversed(range(len(graph.node))):
        node = graph.node[index]
        if not wanted.isdisjoint(filter(None, node.output)):
            found.add(index)
            wanted.update(reads(node))
    return found


def _check_statistics(
    graph: GraphProto, accumulators: Iterable[NodeProto], parameters: Collection[str]
) -> None:
    """Running statistics must belong to a node that can normalise by them."""
    known = {
        node.input[slot]
        for node in graph.node
        if (node.domain, node.op_type) in _NORMALISATIONS
        for slot in (3, 4)
    }
    for node in accumulators:
        if node.input[0] in parameters and node.input[0] not in known:
            raise EngineError(
                f"The training model updates the running statistic '{node.input[0]}' without a "
                "BatchNormalization that could normalise by it: before opset 14 training needs it "
                "spelled out. So it cannot be turned to inference. Make the module with the eval "
                "model: `Module(..., eval_model_uri='eval_model.onnx')`."
            )


def _evaluate(node: NodeProto) -> None:
    """Turn dropout off and normalise by the running statistics."""
    kind = (node.domain, node.op_type)
    if kind == ("", "Dropout") and len(node.input) > 2:
        node.input[2] = ""
    elif kind in _NORMALISATIONS:
        kept = [AttributeProto.FromString(a.SerializeToString()) for a in node.attribute]
        del node.output[1:], node.attribute[:]
        node.attribute.extend(a for a in kept if a.name != "training_mode")
        node.domain, node.op_type = "", "BatchNormalization"
