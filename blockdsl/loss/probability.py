"""Losses of probabilities: of two classes, and between distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from blockdsl.errors import LossError
from blockdsl.graph.portable import where
from blockdsl.graph.shapes import share_of
from blockdsl.graph.value import Value
from blockdsl.loss.base import Loss, check_weights, constant


@dataclass(eq=False)
class BCEWithLogitsLoss(Loss):
    """Binary cross entropy of logits: `-t log(sigmoid(x)) - (1 - t) log(1 - sigmoid(x))`.

    It is computed as `|x| / 2 + (1/2 - t) x + log(1 + e^-|x|)`, which no logit makes infinite.

    Args:
        weight: A factor for each element, of a shape that broadcasts to the prediction's.
        reduction: "mean", "sum" or "none".
        pos_weight: A factor for the first term, of a shape that broadcasts to the prediction's.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     x = blockdsl.input("x", shape=("batch", 3))
        ...     print(BCEWithLogitsLoss(pos_weight=[1, 2, 5])(x).type)
        float32[]
    """

    weight: Any = None
    reduction: str = "mean"
    pos_weight: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weights(self, "weight")
        check_weights(self, "pos_weight")

    def elementwise(self, prediction: Value, target: Value) -> Value:
        """`w ((1 - t) x + (1 + (p - 1) t) softplus(-x))`, the pos_weight being p, 1 by default."""
        if self.pos_weight is None:
            size = prediction.abs()
            losses = 0.5 * size + (0.5 - target) * prediction + (1 + (-size).exp()).log()
        else:
            factor = 1 + (self._fitting("pos_weight", prediction) - 1) * target
            losses = (1 - target) * prediction + factor * (-prediction).softplus()
        return losses if self.weight is None else losses * self._fitting("weight", prediction)

    def _fitting(self, name: str, prediction: Value) -> np.ndarray:
        """Weights that do not make the losses more than the elements of the prediction."""
        array, shape = constant(getattr(self, name), prediction), prediction.shape
        facing = zip(reversed(array.shape), reversed(shape), strict=False)
        if array.ndim > len(shape) or any(
            n != 1 and isinstance(d, int) and n != d for n, d in facing
        ):
            raise LossError(
                f"BCEWithLogitsLoss: {name} has the shape {array.shape}, which does not broadcast "
                f"to {prediction!s} of the type {prediction.type}."
            )
        return array


@dataclass(eq=False)
class KLDivLoss(Loss):
    """The Kullback-Leibler divergence of a target distribution: `t (log(t) - x)`.

    The prediction x holds logarithms of probabilities (of `log_softmax`, say), the target
    probabilities. Where the target is zero, so is the loss.

    Args:
        reduction: "mean", "sum", "none", or "batchmean" for the sum over the size of the first
            axis, which is the divergence itself.
        log_target: Whether the target holds logarithms too.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     x = blockdsl.input("x", shape=("batch", 3))
        ...     print(KLDivLoss("batchmean")(x.log_softmax()).type)
        float32[]
    """

    reduction: str = "mean"
    log_target: bool = False

    REDUCTIONS: ClassVar[tuple[str, ...]] = ("mean", "sum", "none", "batchmean")

    def elementwise(self, prediction: Value, target: Value) -> Value:
        """`t (log(t) - x)`."""
        if self.log_target:
            return target.exp() * (target - prediction)
        # 0 log(0) is 0: the logarithm never sees the zero.
        logarithm = where(target > 0, target, 1).log()
        return target * logarithm - target * prediction

    def reduce(self, losses: Value, weights: Value | None = None) -> Value:
        """As every loss, and "batchmean"."""
        if self.reduction == "batchmean":
            return losses.sum() * share_of(losses, [0])
        return super().reduce(losses, weights)
