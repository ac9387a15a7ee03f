"""The native form of an optimizer model: onnxruntime-training's operators on sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from onnx import TensorProto, helper

from blockdsl.blocks.block import Block
from blockdsl.functional.model_functions import functions_for
from blockdsl.graph.control import repeat
from blockdsl.graph.model import Graph
from blockdsl.graph.op import op
from blockdsl.graph.value import Value
from blockdsl.optim.update import Context

SEQUENCE_OPSET = 13
"""The first opset whose `Loop` carries sequences."""


@dataclass(frozen=True)
class Native:
    """A training operator that implements an optimizer.

    Attributes:
        operator: Its name in the domain `com.microsoft`.
        attributes: Its attributes.
    """

    operator: str
    attributes: Mapping[str, float | int] = field(default_factory=dict)

    def build(self, graph: Graph, clip_grad: Block | None) -> Value:
        """Append the optimizer to an empty model, with the inputs that the training API feeds.

        Returns:
            The flag that the update has been done. The new parameters and moments are outputs of
            the node too: a session without the training operators reads them once they are outputs
            of the model.
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
            outputs = op.microsoft.AdamWOptimizer(
                "learning_rate", "step", "params", gradients, *moments, outputs=4, **self.attributes
            )
        else:
            outputs = op.microsoft.SGDOptimizerV2("learning_rate", "params", gradients, outputs=2)
        graph.proto.functions.extend(functions_for(graph.proto))
        flag: Value = outputs[0]
        return flag


def kernel_context(learning_rate: Value, step: Value) -> Context:
    """Return the context of an update that rounds as the kernels of onnxruntime-training do.

    Args:
        learning_rate: A float32 scalar.
        step: The number of this step, from 1 on: an int64 scalar.
    """
    return Context("", learning_rate, step, power_dtype=np.dtype(np.float32))


class ParameterUpdate(Protocol):
    """The update of one parameter."""

    def update_parameter(
        self, parameter: Value, gradient: Value, slots: Sequence[Value], context: Context
    ) -> tuple[Value, Sequence[Value]]:
        """Return the new values of a parameter and its slots."""


def update_sequences(
    optimizer: ParameterUpdate,
    context: Context,
    parameters: Value,
    gradients: Value,
    *slots: Value,
) -> list[Value]:
    """Update every parameter of a sequence.

    Args:
        optimizer: The update of one parameter.
        context: The learning rate and the step.
        parameters: A sequence of tensors.
        gradients: The sequence of their gradients.
        *slots: A sequence for each slot.

    Returns:
        The new sequences of parameters and slots.
    """

    def update(index: Value, updated: list[Value]) -> list[Value]:
        parameter, gradient, *old = (
            op.SequenceAt(sequence, index) for sequence in (parameters, gradients, *slots)
        )
        new, new_slots = optimizer.update_parameter(parameter, gradient, old, context)
        return [
            op.SequenceInsert(sequence, tensor)
            for sequence, tensor in zip(updated, (new, *new_slots), strict=True)
        ]

    empty = [op.SequenceEmpty() for _ in (parameters, *slots)]
    return repeat(update, empty, op.SequenceLength(parameters))
