"""`Loss`: what all losses share. A loss itself is its elementwise formula."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from blockdsl.blocks.block import Block
from blockdsl.blocks.operator import value_of
from blockdsl.errors import GraphError, LossError
from blockdsl.graph.inputs import input_of, is_own, own_tensor
from blockdsl.graph.tensor import TensorType
from blockdsl.graph.value import Value


class DefaultName(str):
    """The name of a target that the caller did not name."""


class Loss(Block):
    """The base class of losses that compare a prediction with a target, element by element.

    A subclass says how; the target, the reduction and the checks are written here. (Any block can
    be a loss: one with several inputs, or of another kind, derives from `Block`.)

    Example:
        >>> import blockdsl
        >>> class LogCosh(Loss):
        ...     def elementwise(self, prediction, target):
        ...         error = prediction - target
        ...         return error + (-2 * error).softplus() - 0.6931471805599453
        >>> with blockdsl.empty_base() as handle:
        ...     loss = LogCosh()(blockdsl.input("x", shape=("batch", 3)))
        >>> print(loss.type, [i.name for i in handle.model.graph.input])
        float32[] ['x', 'target']
    """

    reduction: str = "mean"
    """"mean", "sum", or "none" for the losses of the elements."""

    REDUCTIONS: ClassVar[tuple[str, ...]] = ("mean", "sum", "none")

    def __post_init__(self) -> None:
        if self.reduction not in self.REDUCTIONS:
            raise self._unknown_reduction()

    @abstractmethod
    def elementwise(self, prediction: Value, target: Value) -> Value:
        """The loss of each element.

        Args:
            prediction: What the model says, a floating-point tensor.
            target: What is right, of the same type; its shape broadcasts to the prediction's.

        Returns:
            A tensor of the shape of the prediction.
        """

    def build(self, loss_input_name: str, target_name: str = DefaultName("target")) -> Value:
        """Append the loss to the model under construction.

        Args:
            loss_input_name: The prediction.
            target_name: The target; an input of that name, of the type and shape of the
                prediction, is added if the model has no such tensor. The default name is never
                that of a tensor which the model had when it was opened.

        Returns:
            The loss: a scalar, or of the prediction's shape with the reduction "none".

        Raises:
            LossError: The prediction is no floating-point tensor, or is its own target.
            GraphError: There is a target, of another type or shape, or the model had a tensor of
                the default name.
        """
        prediction = self.checked(loss_input_name)
        target = self.target_of(prediction, target_name, prediction.type, "target_name")
        return self.reduce(self.elementwise(prediction, target))

    def reduce(self, losses: Value, weights: Value | None = None) -> Value:
        """Reduce the losses of the elements.

        Args:
            losses: The losses, multiplied by their weights.
            weights: The weights, which sum to what "mean" divides by; one each by default.

        Returns:
            Their mean, their sum or the losses themselves.
        """
        if self.reduction == "none":
            return losses
        if self.reduction == "sum":
            return losses.sum()
        if self.reduction != "mean":
            raise self._unknown_reduction()
        # A quotient of means, not of sums: those overflow in float16.
        return losses.mean() if weights is None else losses.mean() / weights.mean()

    def _unknown_reduction(self) -> LossError:
        known = ", ".join(map(repr, self.REDUCTIONS))
        return LossError(
            f"Reduction {self.reduction} not supported. {type(self).__name__} has {known}."
        )

    def checked(self, name: str) -> Value:
        """The prediction, which must be a floating-point tensor."""
        prediction = value_of(name)
        if not prediction.type.is_float:
            raise LossError(
                f"{type(self).__name__} needs a floating-point prediction, and {name!s} has the "
                f"type {prediction.type}. Give it the scores themselves, not classes or indices."
            )
        return prediction

    def target_of(
        self,
        prediction: Value,
        name: str,
        wanted: TensorType,
        argument: str,
        *,
        broadcast: bool = True,
        hint: str = "",
    ) -> Value:
        """Return the target: the tensor of that name, or a new input.

        Args:
            prediction: The prediction that it is compared with.
            name: Its name, a `DefaultName` if the caller gave none.
            wanted: The type that it must have.
            argument: The argument of `build` that names it, for error messages.
            broadcast: Whether a computed target may broadcast to that type.
            hint: Further advice on a target of another type.
        """
        loss, rename = type(self).__name__, f"{argument}='{name}2'"
        if name == prediction:
            raise LossError(
                f"{loss} would compare {str(name)!r} with itself. Name the target: {rename}, or in "
                f"generate_artifacts loss_input_names=['{prediction!s}', '{name}2']."
            )
        if isinstance(name, DefaultName) and is_own(name):
            raise GraphError(
                f"The model has {own_tensor(name)}, and that is the default name of the target of "
                f"{loss}. If it is the target, say so: {argument}='{name}', or in "
                f"generate_artifacts loss_input_names=['{prediction!s}', '{name}']. If not, name "
                f"the target: {rename}, or loss_input_names=['{prediction!s}', '{name}2']."
            )
        advice = f"If that is another target, name this one: {rename}{hint}."
        return input_of(name, wanted, f"{loss} needs", advice, broadcast)


def check_weights(loss: Loss, name: str) -> None:
    """Check that a setting of a loss is None or an array of numbers.

    Raises:
        LossError: It is neither.
    """
    given = getattr(loss, name)
    try:
        fits = given is None or np.asarray(given).dtype.kind in "biufV"  # V: bfloat16
    except ValueError:  # lists of different lengths
        fits = False
    if not fits:
        raise LossError(f"{type(loss).__name__}: {name} is {given!r}: it is an array of numbers.")


def constant(numbers: Any, like: Value) -> np.ndarray:
    """Weights in the type of what they are multiplied by."""
    return np.asarray(numbers).astype(like.dtype)
