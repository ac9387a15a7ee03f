"""Blocks that become whole models: the forward model, and the training and evaluation models.

The training model is the forward model and its gradient. Its inputs are, in this order: the
user's inputs and targets, the parameters, a buffer `<p>_grad.accumulation.buffer` for each trained
parameter, and `lazy_reset_grad`. Its outputs are the loss, the user's other outputs, and
`<p>_grad.accumulation.out` for each trained parameter: the layout of onnxruntime-training 1.19.2,
which every on-device binding expects.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto

from blockdsl.blocks.block import Block, ModelBlock, as_names
from blockdsl.errors import GradientError, GraphError
from blockdsl.functional.model_functions import FLAG, FLOAT, functions_for, model_function
from blockdsl.gradient import build_gradients
from blockdsl.gradient.composites import taken_apart
from blockdsl.gradient.functions import expand_calls
from blockdsl.graph import activate
from blockdsl.graph.context import current
from blockdsl.graph.control import either
from blockdsl.graph.evaluation_mode import to_evaluation_mode
from blockdsl.graph.layout import ACCUMULATED, BUFFER, RESET
from blockdsl.graph.microsoft import OPERATORS
from blockdsl.graph.model import Graph
from blockdsl.graph.op import op
from blockdsl.graph.random import share_generator
from blockdsl.graph.value import Value
from blockdsl.graph.walk import all_nodes

Parameters = tuple[list[TensorProto], list[TensorProto]]
"""The trained and the frozen parameters."""


class ForwardBlock(ModelBlock):
    """A block that makes a forward model: what `build` returns are the model's outputs.

    Example:
        >>> import blockdsl
        >>> class Scores(blockdsl.ForwardBlock):
        ...     def build(self, x):
        ...         return x.softmax()
        >>> block = Scores()
        >>> with blockdsl.empty_base():
        ...     _ = block(blockdsl.input("x", shape=("batch", 3)))
        >>> [output.name for output in block.to_model_proto().graph.output]
        ['Scores/Softmax']
    """


class TrainingBlock(Block):
    """A block that makes a training model: `build` returns the loss, then any other outputs.

    Nothing is trained unless `requires_grad` says so.

    Example:
        >>> import blockdsl
        >>> class Training(blockdsl.TrainingBlock):
        ...     def build(self, x):
        ...         w = blockdsl.parameter("w", "ones", (3, 1))
        ...         return (x @ w).square().mean()
        >>> block = Training()
        >>> block.requires_grad("Training.w")
        >>> with blockdsl.empty_base():
        ...     _ = block(blockdsl.input("x", shape=("batch", 3)))
        >>> training_model, eval_model = block.to_model_proto()
        >>> [output.name for output in training_model.graph.output]
        ['Training/ReduceMean', 'Training.w_grad.accumulation.out']
    """

    _parameters: Parameters | None = None
    _models: tuple[onnx.ModelProto, onnx.ModelProto] | None = None

    def requires_grad(self, argument_name: str, value: bool = True) -> None:
        """Say whether a parameter, or another tensor, is trained.

        Args:
            argument_name: Its name.
            value: True for one that is trained, False for one that is frozen: a frozen one is an
                input of the models and lies in the checkpoint all the same.
        """
        self._marks[argument_name] = value

    @property
    def _marks(self) -> dict[str, bool]:
        """What `requires_grad` was told; subclasses need not call `super().__init__()`."""
        marks: dict[str, bool] = self.__dict__.setdefault("_requires_grad", {})
        return marks

    def parameters(self) -> Parameters:
        """The trained and the frozen parameters, each in the model's order.

        Raises:
            GraphError: The block has not been built.
        """
        if self._parameters is None:
            raise GraphError(
                "Please build the training model first before trying to retrieve the parameters."
            )
        return self._parameters

    def to_model_proto(self) -> tuple[onnx.ModelProto, onnx.ModelProto]:
        """The training and the evaluation model, both fully checked when they were built.

        Raises:
            GraphError: The block has not been built.
        """
        if self._models is None:
            raise GraphError(
                "Please build the training and eval models first before trying to retrieve them."
            )
        return self._models

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `build`, then build the training and evaluation models of what it returns.

        Raises:
            GraphError: The model is not valid.
            UnknownNameError: `requires_grad` was told a name that the model does not have.
            GradientError: The loss is no floating-point scalar, or has no gradient.
        """
        graph = current()
        expand_calls(graph, ("BatchNormalization", "Dropout"))  # what the two models differ in
        built = super().__call__(*args, **kwargs)
        outputs = as_names(built)
        graph.set_outputs(outputs)
        trained = [name for name, on in self._marks.items() if on]
        statistics = _statistics(graph)
        for name in trained:
            if name in statistics:
                raise GradientError(
                    f"{name!r} holds running statistics, which BatchNormalization brings up to "
                    f"date by itself in training. Take it out of what requires a gradient."
                )
        named = {*self._marks, *statistics}
        initializers = graph.initializer_names()
        lifted = [name for name in initializers if name in named]
        evaluation = graph.fork(lifted)
        to_evaluation_mode(evaluation.proto.graph.node)
        evaluation.check()
        training = graph.fork(lifted)
        for node in all_nodes(training.proto.graph.node):
            share_generator(node)
        order = {name: i for i, name in enumerate(initializers)}
        trained.sort(key=lambda name: order.get(name, -1))
        _add_gradients(training, outputs, trained, statistics)
        training.check()
        self._parameters = _parameters(graph, set(trained), set(lifted))
        self._models = training.proto, evaluation.proto
        graph.replace_with(training)
        return built


def _parameters(graph: Graph, trained: set[str], lifted: set[str]) -> Parameters:
    found = [t for t in graph.proto.graph.initializer if t.name in lifted]
    return [t for t in found if t.name in trained], [t for t in found if t.name not in trained]


def _add_gradients(
    graph: Graph, outputs: list[str], trained: list[str], statistics: dict[str, str]
) -> None:
    """The gradient of the first output, accumulated; and the running statistics, replaced."""
    if graph.opset() < 14:
        _spell_out_batch_norm(graph)
    gradients = build_gradients(graph, outputs[0], trained) if trained else {}
    with activate(graph):
        buffers = [
            graph.add_input(f"{name}{BUFFER}", t.elem_type, t.shape)
            for name, t in ((name, graph.type_of(name)) for name in gradients)
        ]
        reset = graph.add_input(RESET, TensorProto.BOOL, [1])
        flags = [
            _accumulate(graph, buffer, gradient, reset, f"{name}_grad{ACCUMULATED}")
            for buffer, (name, gradient) in zip(buffers, gradients.items(), strict=True)
        ]
        # The training API hides outputs of this form from its users, and only these.
        always = graph.add_constant(np.array([True])) if statistics else ""
        flags += [
            _accumulate(graph, statistic, new, always, f"{statistic}_grad{ACCUMULATED}")
            for statistic, new in statistics.items()
        ]
    graph.set_outputs([*outputs, *flags])
    graph.proto.functions.extend(functions_for(graph.proto))


def _accumulate(graph: Graph, buffer: str, value: str, overwrite: str, output: str) -> str:
    accumulator = OPERATORS["InPlaceAccumulatorV2"]
    return graph.add_node(accumulator, [buffer, value, overwrite], [output])[0]


@model_function("InPlaceAccumulatorV2", FLOAT, FLOAT, FLAG)
def _accumulator_function(
    accumulation_buffer: Value, value: Value, overwrite_flag: Value | None = None
) -> tuple[Value, Value]:
    updated = op.Cast(np.ones(1, np.float32), to=TensorProto.BOOL)
    if overwrite_flag is None:
        return updated, op.Add(accumulation_buffer, value)
    total = either(
        overwrite_flag, lambda: op.Identity(value), lambda: op.Add(accumulation_buffer, value)
    )
    return updated, total


def _statistics(graph: Graph) -> dict[str, str]:
    """The running statistics that BatchNormalization updates in training, and their new values."""
    initializers = set(graph.initializer_names())
    found: dict[str, str] = {}
    for node in graph.proto.graph.node:
        if _is_training_batch_norm(node):
            for slot in (3, 4):
                if node.input[slot] in initializers:
                    found[node.input[slot]] = graph.declare_output(node, slot - 2)
    return found


def _is_training_batch_norm(node: NodeProto) -> bool:
    """Whether a node normalises by the batch: before opset 14 one with several outputs does."""
    if node.op_type != "BatchNormalization" or node.domain:
        return False
    return any(node.output[1:]) or any(a.name == "training_mode" and a.i for a in node.attribute)


def _spell_out_batch_norm(graph: Graph) -> None:
    """Put its mathematics in the place of training-form BatchNormalization.

    Before opset 14 runtimes have kernels for its inference form alone.
    """
    nodes = list(graph.proto.graph.node)
    if any(map(_is_training_batch_norm, nodes)):
        made = [
            (taken_apart(graph, node) or [node]) if _is_training_batch_norm(node) else [node]
            for node in nodes
        ]
        graph.replace_nodes([node for parts in made for node in parts])
