"""The forward model inside a training model, as it is evaluated: no gradients, no dropout."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from onnx import GraphProto, ModelProto, NodeProto

from blockdsl.backend.walk import ancestors, is_accumulator
from blockdsl.errors import EngineError
from blockdsl.graph.evaluation_mode import NORMALISATIONS, to_evaluation_mode
from blockdsl.graph.layout import BUFFER, DROPOUT_NOISE, RESET
from blockdsl.graph.walk import replace_items

_EVAL_MODEL = (
    "Make the module with the eval model: `Module(..., eval_model_uri='eval_model.onnx')`."
)


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
        EngineError: Batch normalisation is spelled out, as training before opset 14 needs it, or
            dropout, before opset 12.
    """
    graph = model.graph
    accumulators = [node for node in graph.node if is_accumulator(node)]
    flags = {name for node in accumulators for name in node.output}
    outputs = [value for value in graph.output if value.name not in flags]
    _check_statistics(graph, accumulators, parameters)
    forward = ancestors(graph.node, [value.name for value in outputs])
    backward = ancestors(graph.node, [name for node in accumulators for name in node.input])
    kept = [
        node
        for index, node in enumerate(graph.node)
        if not is_accumulator(node) and (index in forward or index not in backward)
    ]
    _check_dropout(kept)
    to_evaluation_mode(kept)
    inputs = [v for v in graph.input if v.name != RESET and not v.name.endswith(BUFFER)]
    for container, values in ((graph.node, kept), (graph.output, outputs), (graph.input, inputs)):
        replace_items(container, values)
    return model


def _check_dropout(nodes: Iterable[NodeProto]) -> None:
    """Dropout must be an operator that can be turned off."""
    for node in nodes:
        if node.name.endswith(DROPOUT_NOISE):
            raise EngineError(
                f"The training model drops by {node.name!r}: before opset 12 training needs "
                f"Dropout spelled out, which cannot be turned to inference. {_EVAL_MODEL}"
            )


def _check_statistics(
    graph: GraphProto, accumulators: Iterable[NodeProto], parameters: Collection[str]
) -> None:
    """Running statistics must belong to a node that can normalise by them."""
    updated = {
        name
        for node in graph.node
        if (node.domain, node.op_type) in NORMALISATIONS
        for name in node.output
    }
    for node in accumulators:
        if node.input[0] in parameters and node.input[1] not in updated:
            raise EngineError(
                f"The training model updates the running statistic '{node.input[0]}' without a "
                "BatchNormalization that could normalise by it: before opset 14 training needs it "
                f"spelled out. So it cannot be turned to inference. {_EVAL_MODEL}"
            )
