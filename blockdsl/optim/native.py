"""The form of an optimizer model that onnxruntime-training knows: operators on sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx import TensorProto, helper

from blockdsl.blocks.block import Block
from blockdsl.gradient.bodies import functions_for
from blockdsl.graph.model import Graph
from blockdsl.graph.op import op
from blockdsl.graph.value import Value


@dataclass(frozen=True)
class Native:
    """A training operator that is an optimizer.

    Attributes:
        operator: Its name in the domain `com.microsoft`.
        attributes: Its attributes.
    """

    operator: str
    attributes: Mapping[str, float | int] = field(default_factory=dict)

    def build(self, graph: Graph, clip_grad: Block | None) -> Value:
        """Append the optimizer to an empty model, with the inputs that the training API feeds.

        Returns:
            The flag that says that the parameters have been changed. The new parameters and moments
            are outputs of the node, too: a session without the training operators gives them to
            whoever makes them outputs of the model.
        """
        inputs = graph.proto.graph.input
        inputs.append(helper.make_tensor_value_info("learning_rate", TensorProto.FLOAT, [1]))
        inputs.append(helper.make_tensor_value_info("step", TensorProto.INT64, [1]))
        sequences = ["params", "gradients", "first_order_moments"]
        if self.operator == "AdamWOptimizer":
            sequences.append("second_order_moments")
        for name in sequences:
            inputs.append(helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None))
        gradients = "gradients" if clip_grad is None else clip_grad("gradients")
        if self.operator == "AdamWOptimizer":
            moments = sequences[2:]
            made = op.microsoft.AdamWOptimizer(
                "learning_rate", "step", "params", gradients, *moments, outputs=4, **self.attributes
            )
        else:
            made = op.microsoft.SGDOptimizerV2("learning_rate", "params", gradients, outputs=2)
        graph.proto.functions.extend(functions_for(graph.proto))
        flag: Value = made[0]
        return flag
