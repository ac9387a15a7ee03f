"""The softmax family and the losses on top of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun

Array = npt.NDArray[Any]


class _Exponential(OpRun):
    """`onnx.reference` knows the form of opset 13 only; before that, axes were flattened."""

    op_domain = ""

    def _shifted(self, x: Array) -> tuple[Array, tuple[int, ...]]:
        """`x` less its maximum, and the axes that are normalised together."""
        single = self.run_params["opsets"].get("", 13) >= 13
        given = [a.i for a in self.onnx_node.attribute if a.name == "axis"]
        axis = (given or [-1 if single else 1])[0] % x.ndim
        axes = (axis,) if single else tuple(range(axis, x.ndim))
        return x - x.max(axis=axes, keepdims=True), axes


class Softmax(_Exponential):
    """See there."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        shifted, axes = self._shifted(x)
        powers = np.exp(shifted)
        return (powers / powers.sum(axis=axes, keepdims=True),)


class LogSoftmax(_Exponential):
    """See there."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        shifted, axes = self._shifted(x)
        return (shifted - np.log(np.exp(shifted).sum(axis=axes, keepdims=True)),)


class NegativeLogLikelihoodLoss(OpRun):
    """`onnx.reference` takes the mean over what is ignored too, if ignore_index is -1."""

    op_domain = ""

    def _run(
        self,
        log_p: Array,
        target: Array,
        weight: Array | None = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
    ) -> tuple[Array]:
        return (_likelihood_loss(log_p, target, weight, ignore_index, reduction),)


class SoftmaxCrossEntropyLoss(OpRun):
    """`onnx.reference` takes the logarithm of probabilities that have become zero."""

    op_domain = ""

    def _run(
        self,
        scores: Array,
        labels: Array,
        weights: Array | None = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
    ) -> tuple[Array, ...]:
        shifted = scores - scores.max(axis=1, keepdims=True)
        log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        loss = _likelihood_loss(log_p, labels, weights, ignore_index, reduction)
        return (loss, log_p)[: len(self.onnx_node.output)]


def _likelihood_loss(
    log_p: Array, labels: Array, weights: Array | None, ignored: int | None, reduction: str
) -> Array:
    valid = np.ones(labels.shape, bool) if ignored is None else labels != ignored
    safe = np.where(valid, labels, 0)
    factors = valid * (np.ones(log_p.shape[1]) if weights is None else weights)[safe]
    losses = -np.take_along_axis(log_p, safe[:, None], axis=1)[:, 0] * factors
    if reduction == "mean":
        losses = losses.sum() / factors.sum()
    elif reduction == "sum":
        losses = losses.sum()
    return np.asarray(losses, log_p.dtype)


OPERATORS: list[Any] = [LogSoftmax, NegativeLogLikelihoodLoss, Softmax, SoftmaxCrossEntropyLoss]
