"""Losses of differences."""

from __future__ import annotations

from dataclasses import dataclass

from blockdsl.errors import LossError, check_number
from blockdsl.graph.op import op
from blockdsl.graph.value import Value
from blockdsl.loss.base import Loss


@dataclass(eq=False)
class MSELoss(Loss):
    """The squared error, `(x - t)^2`.

    Args:
        reduction: "mean", "sum" or "none".

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base() as handle:
        ...     loss = MSELoss()(blockdsl.input("x", shape=("batch", 3)))
        >>> print(loss, loss.type, [i.name for i in handle.model.graph.input])
        MSELoss/ReduceMean float32[] ['x', 'target']
    """

    reduction: str = "mean"

    def elementwise(self, prediction: Value, target: Value) -> Value:
        """`(x - t)^2`."""
        return (prediction - target).square()


@dataclass(eq=False)
class L1Loss(Loss):
    """The absolute error, `|x - t|`.

    Args:
        reduction: "mean", "sum" or "none".

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     x = blockdsl.input("x", shape=("batch", 3))
        ...     print(L1Loss("none")(x, target_name="y").type)
        float32[batch, 3]
    """

    reduction: str = "mean"

    def elementwise(self, prediction: Value, target: Value) -> Value:
        """`|x - t|`."""
        return (prediction - target).abs()


@dataclass(eq=False)
class HuberLoss(Loss):
    """Half the squared error, `e^2 / 2`, where `|e| < delta`; beyond `delta (|e| - delta / 2)`.

    Args:
        reduction: "mean", "sum" or "none".
        delta: Where it becomes straight; positive.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(HuberLoss(delta=0.5)(blockdsl.input("x", shape=("batch", 3))).type)
        float32[]
    """

    reduction: str = "mean"
    delta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive(self, "delta", self.delta)

    def elementwise(self, prediction: Value, target: Value) -> Value:
        """`c (|e| - c / 2)` with `c = min(|e|, delta)`."""
        return _huber(prediction - target, self.delta)


@dataclass(eq=False)
class SmoothL1Loss(Loss):
    """The Huber loss over beta: `e^2 / (2 beta)` where `|e| < beta`, beyond `|e| - beta / 2`.

    Args:
        reduction: "mean", "sum" or "none".
        beta: Where it becomes straight; positive.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(SmoothL1Loss()(blockdsl.input("x", shape=("batch", 3))).type)
        float32[]
    """

    reduction: str = "mean"
    beta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive(self, "beta", self.beta)

    def elementwise(self, prediction: Value, target: Value) -> Value:
        """`c (|e| - c / 2) / beta` with `c = min(|e|, beta)`."""
        return _huber(prediction - target, self.beta) / self.beta


def _huber(error: Value, delta: float) -> Value:
    size = error.abs()
    near: Value = op.Min(size, delta)
    return near * (size - 0.5 * near)


def _check_positive(loss: Loss, name: str, given: float) -> None:
    check_number(LossError, f"{type(loss).__name__}: {name}", given)
    if not given > 0:
        hint = " The limit at 0 is L1Loss." if name == "beta" else ""
        raise LossError(f"{type(loss).__name__}: {name}={given} is not positive.{hint}")
