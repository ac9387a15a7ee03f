"""Optimizers: the update of a parameter from its gradient and its state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from onnx import TensorProto

from blockdsl.blocks.block import Block, ModelBlock, is_block
from blockdsl.errors import OptimizerError
from blockdsl.graph.context import current
from blockdsl.graph.layout import NEW
from blockdsl.graph.model import Graph
from blockdsl.graph.op import op
from blockdsl.graph.tensor import FLOATS, np_dtype
from blockdsl.graph.value import Value
from blockdsl.optim.clip import ClipGradNorm
from blockdsl.optim.native import Native
from blockdsl.optim.plain_form import (
    compute_type,
    scalar_inputs,
    tensor_inputs,
    to_compute_type,
)
from blockdsl.optim.steps import Slots
from blockdsl.optim.update import Context

Parameters = tuple[Sequence[TensorProto], Sequence[TensorProto]]
"""The trained and the frozen parameters, as `TrainingBlock.parameters` gives them."""


class AbstractOptimizer(ModelBlock):
    """A block that builds an optimizer model for given parameters.

    Optimizers that onnxruntime-training knows are built in its native form, which each of its
    bindings runs; all others in the plain form (`blockdsl.optim.plain_form`). Parameters of half
    precision are updated in float32, and their state is float32.
    """

    slots: tuple[str, ...] = ()
    clip_grad: Block | None = None

    @abstractmethod
    def update_parameter(
        self, parameter: Value, gradient: Value, slots: Slots, context: Context
    ) -> tuple[Value, Slots]:
        """Return the new values of a parameter and its slots."""

    def native(self, names: Sequence[str]) -> Native | None:
        """Return the training operator with the same update for these parameters, if any."""
        del names
        return None

    def check(self, names: Sequence[str]) -> None:
        """Check that the optimizer supports these parameters.

        Raises:
            BlockError: It does not.
        """
        del names

    def build(self, parameters: Parameters) -> Any:
        """Append the optimizer to the model under construction, which must be empty.

        Args:
            parameters: The trained and the frozen parameters.

        Returns:
            The flag that the training operator sets, or the new values of all parameters and slots.

        Raises:
            OptimizerError: There is nothing to train, a parameter has no floating-point type, or
                this is not the pair that `TrainingBlock.parameters()` returns.
        """
        trained = _trained(parameters)
        self._check(trained)
        if all(tensor.data_type == TensorProto.FLOAT for tensor in trained):
            native = self.native([tensor.name for tensor in trained])
            if native is not None:
                return native.build(current(), self.clip_grad)
        return self._plain(current(), trained)

    def _check(self, trained: Sequence[TensorProto]) -> None:
        if not trained:
            raise OptimizerError("There is nothing to train: no parameter requires a gradient.")
        for tensor in trained:
            if tensor.data_type not in FLOATS:
                raise OptimizerError(
                    f"The parameter {tensor.name!r} is of {np_dtype(tensor.data_type)}: an "
                    f"optimizer changes floating-point tensors."
                )
        if self.clip_grad is not None and not is_block(self.clip_grad):
            raise OptimizerError(
                f"clip_grad is {self.clip_grad!r}: it is a blockdsl.optim.ClipGradNorm(max_norm) "
                f"or None."
            )
        self.check([tensor.name for tensor in trained])

    def _plain(self, graph: Graph, trained: Sequence[TensorProto]) -> list[Value]:
        if not isinstance(self.clip_grad, ClipGradNorm | None):
            raise OptimizerError(
                f"clip_grad is {self.clip_grad!r}, which clips a sequence of gradients, as only "
                f"AdamW and SGD in the form of onnxruntime-training have one. Here it is a "
                f"blockdsl.optim.ClipGradNorm(max_norm) or None."
            )
        rate, step = scalar_inputs(graph)
        inputs = [tensor_inputs(graph, t.name, t.data_type, t.dims, self.slots) for t in trained]
        gradients = [gradient for _, gradient, *_ in inputs]
        factor = None if self.clip_grad is None else self.clip_grad.factor(gradients)
        contexts: dict[int, Context] = {}
        targets: dict[str, str] = {}
        for parameter, gradient, *slots in inputs:
            kind = compute_type(parameter.elem_type)
            if kind not in contexts:
                contexts[kind] = Context("", rate.cast(kind), step)
            context = contexts[kind].for_parameter(str(parameter))
            with graph.scope(parameter):
                direction = to_compute_type(gradient)
                if factor is not None:
                    direction = direction * factor.cast(kind)
                old = [to_compute_type(parameter), *slots]
                result = self.update_parameter(old[0], direction, slots, context)
                new = self._checked(result, old, context.name)
                new[0] = new[0].cast(parameter.elem_type)
                for source, value in zip([parameter, *slots], new, strict=True):
                    targets[_written(value, targets)] = f"{source}{NEW}"
        graph.rename(targets)
        return [graph.value(name) for name in targets.values()]

    def _checked(self, result: Any, old: Sequence[Value], name: str) -> list[Value]:
        """Return the new values if each has the type of the value that it replaces."""
        who = f"{type(self).__name__} on {name!r}"
        if not (isinstance(result, tuple) and len(result) == 2 and len(result[1]) == len(old) - 1):
            raise OptimizerError(
                f"{who}: an update returns the new parameter and a sequence of the "
                f"{len(old) - 1} new slots {list(self.slots)}, not {result!r}."
            )
        new = [result[0], *result[1]]
        for which, before, after in zip(["parameter", *self.slots], old, new, strict=True):
            if not isinstance(after, Value) or after.type != before.type:
                shown = after.type if isinstance(after, Value) else repr(after)
                raise OptimizerError(
                    f"{who}: the update returns {shown} as the new value of the {which}, which is "
                    f"{before.type}."
                )
        return new


def _written(value: Value, taken: dict[str, str]) -> Value:
    """Return the tensor, copied unless a node writes it and it is no other output yet."""
    graph = value.graph
    if graph.producer(value) is None or value in taken:
        copied: Value = op.Identity(value)
        return copied
    return value


class Optimizer(AbstractOptimizer):
    """The base class of optimizers written as one formula.

    Example:
        >>> import blockdsl, numpy, onnx
        >>> class Lion(blockdsl.optim.Optimizer):
        ...     slots = ("momentum0",)
        ...
        ...     def update(self, parameter, gradient, slots, learning_rate, step):
        ...         (mean,) = slots
        ...         direction = blockdsl.op.Sign(0.9 * mean + 0.1 * gradient)
        ...         return parameter - learning_rate * direction, [0.99 * mean + 0.01 * gradient]
        >>> weight = onnx.numpy_helper.from_array(numpy.zeros((2, 3), "float32"), "w")
        >>> lion = Lion()
        >>> with blockdsl.empty_base():
        ...     lion(([weight], []))
        ['w.out', 'w.momentum0.out']
        >>> [value.name for value in lion.to_model_proto().graph.input]
        ['learning_rate', 'step', 'w', 'w_grad', 'w.momentum0']
    """

    @abstractmethod
    def update(
        self,
        parameter: Value,
        gradient: Value,
        slots: Slots,
        learning_rate: Value,
        step: Value,
    ) -> tuple[Value, Slots]:
        """Update a parameter.

        Args:
            parameter: The parameter.
            gradient: Its gradient, clipped if `clip_grad` is set.
            slots: Its state: tensors of its shape, in the order of the class's `slots`, zero before
                the first step.
            learning_rate: The learning rate, a scalar of the parameter's type.
            step: The number of this step, from 1 on: an int64 scalar.

        Returns:
            The new parameter and its new state.
        """

    def update_parameter(
        self, parameter: Value, gradient: Value, slots: Slots, context: Context
    ) -> tuple[Value, Slots]:
        """Return the new values of a parameter and its slots."""
        return self.update(parameter, gradient, slots, context.learning_rate, context.step)


def _trained(parameters: Any) -> list[TensorProto]:
    """Return the first of a pair of lists of parameters."""
    if isinstance(parameters, Sequence) and len(parameters) == 2:
        trained, frozen = parameters
        if isinstance(trained, Sequence) and isinstance(frozen, Sequence):
            return list(trained)
    raise OptimizerError(
        "An optimizer is called with the trained and the frozen parameters, the pair that "
        f"TrainingBlock.parameters() returns, and not with one {type(parameters).__name__}."
    )
