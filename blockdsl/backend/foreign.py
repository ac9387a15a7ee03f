"""Models of onnxruntime-training's making in plain ONNX.

They hold operators that only its own wheel has: `ConvGrad`, `LSTMTraining` and their like. For a
stock runtime what they mean takes their place.
"""

from __future__ import annotations

from onnx import ModelProto, NodeProto

from blockdsl.functional.model_functions import functions_for
from blockdsl.graph.schema import MICROSOFT

_OURS = frozenset({"InPlaceAccumulatorV2"})
"""What of `com.microsoft` models of blockdsl's own making hold."""


def replace_foreign_operators(model: ModelProto) -> None:
    """Put plain ONNX in the place of what only the training build has, but for the accumulators.

    Args:
        model: The model; it is changed.

    Raises:
        GradientError: An operator has no plain form.
        GraphError: The model is not valid.
    """
    if all(map(_is_ours, model.graph.node)):
        return
    # Imported here because blockdsl's own models do without.
    from blockdsl.passes.replace_training_operators import replace_training_operators

    model.functions.extend(functions_for(model))
    replace_training_operators(model)


def _is_ours(node: NodeProto) -> bool:
    if node.domain == MICROSOFT:
        return node.op_type in _OURS
    return not node.op_type.endswith("Grad") and node.domain in ("", "ai.onnx")
