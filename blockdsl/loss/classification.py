"""Losses of classes that are given by their indices."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from blockdsl.errors import LossError, check_number
from blockdsl.graph.context import current
from blockdsl.graph.op import op
from blockdsl.graph.portable import where, widened
from blockdsl.graph.shapes import permuted, reshape_like
from blockdsl.graph.tensor import TensorType, axis_in
from blockdsl.graph.value import Value
from blockdsl.loss.base import DefaultName, Loss, check_weights, constant


@dataclass(eq=False)
class ClassLoss(Loss):
    """The base class of losses that compare a score for each class with the index of one.

    The scores have an axis of classes: axis 1, as in (N, C) and (N, C, D1, ...), unless `axis`
    says otherwise, as it must for (N, T, C). The labels have the other axes. From opset 12 on the
    loss is one operator; before, and with label smoothing, it is written out.
    """

    weight: Any = None
    reduction: str = "mean"
    ignore_index: int | None = None
    _: KW_ONLY
    axis: int | None = None

    label_smoothing = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("ignore_index", "axis"):
            if (given := getattr(self, name)) is not None:
                check_number(LossError, f"{type(self).__name__}: {name}", given, whole=True)
        check_weights(self, "weight")

    @abstractmethod
    def log_probabilities(self, scores: Value, axis: int) -> Value:
        """The logarithm of the probability of each class."""

    @abstractmethod
    def fused(self, scores: Value, labels: Value, weight: Any, **settings: Any) -> Value:
        """The loss as one operator, which has the classes at axis 1."""

    def build(self, scores_input_name: str, labels_name: str = DefaultName("labels")) -> Value:
        """Append the loss to the model under construction.

        Args:
            scores_input_name: The scores.
            labels_name: The labels, integers; an int64 input of that name, of the shape of the
                scores without the axis of classes, is added if the model has no such tensor. The
                default name is never that of a tensor which the model had when it was opened.

        Returns:
            The loss: a scalar, or of the labels' shape with the reduction "none".

        Raises:
            LossError: The scores are no floating-point tensor or have no axis of classes, or there
                is not one weight for each class.
            GraphError: There are labels, of another type or shape, or the model had a tensor of
                the default name.
        """
        scores = self.checked(scores_input_name)
        axis = self._class_axis(scores)
        labels = self._labels(scores, axis, labels_name)
        if current().opset() >= 12 and not self.label_smoothing:
            return self._at_axis_1(scores, labels, axis)
        losses = self.elementwise(scores, labels)
        return self.reduce(losses, self._weights(scores, labels))

    def elementwise(self, prediction: Value, target: Value) -> Value:
        """`-w[t] log(p[t])` for the label t, smoothed if asked for; 0 where it is ignored."""
        axis = self._class_axis(prediction)
        log_p = self.log_probabilities(prediction, axis)
        classes = self._classes(prediction, axis)
        beside = (-1,) + (1,) * (prediction.rank - 1 - axis)
        if current().opset() >= 12:
            losses = self._selected(log_p, target, axis)
        else:
            hit = target.unsqueeze(axis).equal(np.arange(classes).reshape(beside))
            losses = -self._of_labels(prediction, target) * where(hit, log_p, 0).sum(axis)
        if self.label_smoothing:
            spread = np.ones(classes) if self.weight is None else np.asarray(self.weight)
            share = (-self.label_smoothing / classes) * spread.reshape(beside)
            smooth = (log_p * constant(share, prediction)).sum(axis)
            losses = (1 - self.label_smoothing) * losses + smooth
        return losses if self.ignore_index is None else where(self._counts(target), losses, 0)

    def _selected(self, log_p: Value, labels: Value, axis: int) -> Value:
        """`-w[t] log(p[t])` by the operator that is told the number of classes by its input."""
        others = [a for a in range(log_p.rank) if a != axis]
        wide = widened(log_p)  # the operator takes no bfloat16
        weight = None if self.weight is None else constant(self.weight, wide)
        losses: Value = op.NegativeLogLikelihoodLoss(
            permuted(wide, [others[0], axis, *others[1:]]),
            labels,
            weight,
            ignore_index=self.ignore_index,
            reduction="none",
        )
        return losses.cast(log_p.elem_type)

    def _weights(self, scores: Value, labels: Value) -> Value | None:
        """What "mean" divides by the mean of: the weights of the labels that count."""
        if self.weight is None and self.ignore_index is None:
            return None
        weights = self._of_labels(scores, labels)
        return weights if self.ignore_index is None else where(self._counts(labels), weights, 0)

    def _of_labels(self, scores: Value, labels: Value) -> Value:
        """The weight of each label. It also makes a label that is no class an error at run time."""
        classes = self._classes(scores, self._class_axis(scores))
        weights = np.ones(classes) if self.weight is None else self.weight
        if self.ignore_index is not None:
            labels = where(self._counts(labels), labels, 0)
        if current().opset() < 12:  # a negative index would count from the end
            labels = where(labels.cast(np.float32) < 0, classes, labels)
        found: Value = op.Gather(constant(weights, scores), labels, axis=0)
        return found

    def _counts(self, labels: Value) -> Value:
        return ~labels.equal(self.ignore_index)

    def _class_axis(self, scores: Value) -> int:
        loss, rank = type(self).__name__, scores.rank
        if rank < 2:
            raise LossError(
                f"{loss} needs scores with an axis of classes beside the batch, (N, C) or "
                f"(N, C, D1, ...), and {scores!s} has the type {scores.type}."
            )
        axis = axis_in(1 if self.axis is None else self.axis, rank)
        classes, shape = scores.shape[axis], np.shape(self.weight)
        known = (classes,) if isinstance(classes, int) else shape[:1]
        if self.weight is not None and (len(shape) != 1 or shape != known):
            raise LossError(
                f"{loss} needs one weight for each class, and got an array of the shape {shape}: "
                f"{scores!s} has the type {scores.type}, with the classes along axis {axis}."
            )
        return axis

    def _classes(self, scores: Value, axis: int) -> int:
        classes = scores.shape[axis]
        if not isinstance(classes, int):
            raise LossError(
                f"{type(self).__name__} needs to know how many classes there are when it is "
                f"written out, with label smoothing or before opset 12; {scores!s} has the type "
                f"{scores.type}. Give axis {axis} a size in the model."
            )
        return classes

    def _labels(self, scores: Value, axis: int, name: str) -> Value:
        graph = current()
        short = name in graph and graph.type_of(name).elem_type == TensorProto.INT32
        shape = tuple(d for i, d in enumerate(scores.shape) if i != axis)
        wanted = TensorType(TensorProto.INT32 if short else TensorProto.INT64, shape)
        last = "; if the classes are along the last axis of the scores, say axis=-1"
        hint = last if self.axis is None and scores.rank > 2 else ""
        return self.target_of(scores, name, wanted, "labels_name", broadcast=False, hint=hint)

    def _at_axis_1(self, scores: Value, labels: Value, axis: int) -> Value:
        """The operator, on scores whose axis of classes is moved to where it expects it."""
        settings = {"ignore_index": self.ignore_index, "reduction": self.reduction}
        weight = None if self.weight is None else constant(self.weight, scores)
        if axis == scores.rank - 1 and axis > 1:
            rows = op.Flatten(scores, axis=axis)
            losses = self.fused(rows, labels.reshape(-1), weight, **settings)
            return reshape_like(losses, labels) if self.reduction == "none" else losses
        others = [a for a in range(scores.rank) if a != axis]
        scores = permuted(scores, [others[0], axis, *others[1:]])
        return self.fused(scores, labels, weight, **settings)


@dataclass(eq=False)
class CrossEntropyLoss(ClassLoss):
    """The cross entropy of scores and labels: `-w[t] log(softmax(x)[t])` for the label t.

    Args:
        weight: A weight for each class; "mean" divides by the weights of the labels.
        reduction: "mean", "sum" or "none".
        ignore_index: The label of what does not count: neither in the loss nor in its mean. None by
            default, where PyTorch has -100: every label must then be the index of a class.
        label_smoothing: The part of each target, from 0 to 1, that is spread over all classes.
        axis: The axis of classes, 1 by default; -1 for scores (N, T, C).

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base() as handle:
        ...     scores = blockdsl.input("scores", shape=("batch", 5, 10))
        ...     loss = CrossEntropyLoss(axis=-1)(scores)
        >>> print(loss.type, blockdsl.graph.Graph(handle.model).value("labels").type)
        float32[] int64[batch, 5]
    """

    _: KW_ONLY
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(LossError, "CrossEntropyLoss: label_smoothing", self.label_smoothing)
        if not 0 <= self.label_smoothing <= 1:
            raise LossError(
                f"CrossEntropyLoss: label_smoothing={self.label_smoothing} is not between 0 and 1."
            )

    def log_probabilities(self, scores: Value, axis: int) -> Value:
        """`log(softmax(x))`."""
        return scores.log_softmax(axis)

    def fused(self, scores: Value, labels: Value, weight: Any, **settings: Any) -> Value:
        """`SoftmaxCrossEntropyLoss`, with its second output, which the gradient needs."""
        losses, _ = op.SoftmaxCrossEntropyLoss(scores, labels, weight, **settings, outputs=2)
        return losses


@dataclass(eq=False)
class NLLLoss(ClassLoss):
    """The negative log likelihood: `-w[t] x[t]` for the label t and logarithms x of probabilities.

    Args:
        weight: A weight for each class; "mean" divides by the weights of the labels.
        reduction: "mean", "sum" or "none".
        ignore_index: The label of what does not count: neither in the loss nor in its mean. None by
            default, where PyTorch has -100: every label must then be the index of a class.
        axis: The axis of classes, 1 by default; -1 for scores (N, T, C).

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     scores = blockdsl.input("scores", shape=("batch", 10))
        ...     print(NLLLoss(reduction="sum")(scores.log_softmax()).type)
        float32[]
    """

    def log_probabilities(self, scores: Value, axis: int) -> Value:
        """The scores themselves."""
        return scores

    def fused(self, scores: Value, labels: Value, weight: Any, **settings: Any) -> Value:
        """`NegativeLogLikelihoodLoss`."""
        losses: Value = op.NegativeLogLikelihoodLoss(scores, labels, weight, **settings)
        return losses
