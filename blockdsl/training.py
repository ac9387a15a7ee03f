"""Blocks that become whole models: the forward model, and the training and evaluation models.

The training model is the forward model and its gradient. Its inputs are, in this order: the
user's inputs and targets, the parameters, a buffer `<p>_grad.accumulation.buffer` for each trained
parameter, and `lazy_reset_grad`. Its outputs are the loss, the user's other outputs, and
`<p>_grad.accumulation.out` for each trained parameter: the layout of onnxruntime-training 1.19.2,
which every on-device binding expects.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto

from blockdsl.blocks.block import Block, ModelBlock, output_names
from blockdsl.errors import BlockWarning, GradientError, GraphError
from blockdsl.functional.label_checks import check_computed_labels, declare_scores
from blockdsl.functional.matrix_vector import spell_out_transposed_products
from blockdsl.functional.model_functions import FLAG, FLOAT, functions_for, model_function
from blockdsl.functional.training_dropout import spell_out_dropout
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
from blockdsl.graph.walk import all_nodes, reads, rename_tensors

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
        outputs = output_names(built)
        graph.set_outputs(outputs)
        check_computed_labels(graph)
        spell_out_transposed_products(graph)
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
        _add_gradients(training, outputs, trained, _updated_statistics(training, statistics))
        training.check()
        for model in (training, evaluation):
            declare_scores(model)
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
    if graph.opset() < 12:
        spell_out_dropout(graph)
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


def _statistics(graph: Graph) -> list[str]:
    """Return the running statistics that BatchNormalization updates in training.

    Raises:
        GradientError: One is updated inside the body of a loop or branch.
    """
    outside = list(filter(_is_training_batch_norm, graph.proto.graph.node))
    for node in all_nodes(graph.proto.graph.node):
        if _is_training_batch_norm(node) and not any(node is other for other in outside):
            raise GradientError(
                f"BatchNormalization {node.name!r} is in training mode in the body of a loop or "
                f"branch, which cannot update the running statistics {list(node.input[3:5])} of "
                f"the model. Move it out of the body, or set its training_mode to 0."
            )
    initializers = set(graph.initializer_names())
    sources = dict.fromkeys(_source(graph, n.input[slot]) for n in outside for slot in (3, 4))
    computed = [name for name in sources if graph.producer(name) is not None]
    if computed:
        warnings.warn(
            f"BatchNormalization in training mode starts from running statistics that the model "
            f"computes ({', '.join(computed)}): training does not update these, and evaluation "
            f"uses them as they are. Make the statistics initializers of the model.",
            BlockWarning,
            stacklevel=4,
        )
    return [name for name in sources if name in initializers]


def _source(graph: Graph, name: str) -> str:
    """Return the tensor that another one is the same as, by Identity nodes."""
    producer = graph.producer(name)
    while producer is not None and producer.op_type == "Identity" and not producer.domain:
        name = producer.input[0]
        producer = graph.producer(name)
    return name


def _updated_statistics(graph: Graph, statistics: Sequence[str]) -> dict[str, str]:
    """Return the new values of running statistics.

    Where several nodes update one statistic, each continues from what the one before it made.
    """
    latest = {name: name for name in statistics}
    readers = _other_readers(graph, set(statistics))
    if readers:
        latest |= _separated(graph, readers)
    for node in filter(_is_training_batch_norm, graph.proto.graph.node):
        for slot in (3, 4):
            name = _source(graph, node.input[slot])
            if name in latest:
                node.input[slot] = latest[name]
                latest[name] = graph.declare_output(node, slot - 2)
                graph.annotate(latest[name], graph.type_of(name))
    return latest


def _other_readers(graph: Graph, statistics: set[str]) -> set[str]:
    """Return the statistics that more than the nodes that update them read."""
    found: set[str] = set()
    for node in graph.proto.graph.node:
        names = reads(node)
        if _is_training_batch_norm(node):
            names -= set(node.input[3:5])
        if node.op_type != "Identity":
            found |= {_source(graph, name) for name in names} & statistics
    return found


def _separated(graph: Graph, statistics: Iterable[str]) -> dict[str, str]:
    """Let all other nodes read statistics as they are before the update; return the updates' input.

    Runtimes update statistics in the memory of the input (the operator's kernel does, and the
    training API's accumulator), at any time among the nodes that read it. So those nodes read a
    copy, and the update starts from a copy of the copy. Two negations are a copy that no optimizer
    of a graph removes.
    """
    nodes = list(graph.proto.graph.node)
    with activate(graph), graph.names.root():
        copies = {name: op.Neg(op.Neg(graph.value(name))) for name in sorted(statistics)}
        starts = {name: str(op.Neg(op.Neg(copy))) for name, copy in copies.items()}
    for node in nodes:
        kept = list(node.input[3:5]) if _is_training_batch_norm(node) else []
        rename_tensors(node, copies)
        node.input[3 : 3 + len(kept)] = kept
    graph.replace_nodes([*graph.proto.graph.node[len(nodes) :], *nodes])
    return starts


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
