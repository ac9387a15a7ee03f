"""Rules of the two losses that ONNX has operators for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from blockdsl.functional.scatter_sums import add_along, count_of, scatter
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.portable import where, widened
from blockdsl.graph.shapes import expand_like, reshape, shape_of, typed_as
from blockdsl.graph.value import Value


@vjp("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(
    g: Any,
    y: Any,
    scores: Value,
    labels: Value,
    weights: Value | None,
    *,
    ignore_index: int | None,
    reduction: str,
) -> tuple[Value | None, None, Value | None]:
    """y = -w log p[label]        dscores = q (p - onehot(label))        q = g w (mean: over sum(w))

    What is ignored has the weight zero; if all is, the gradient is zero, as in PyTorch.
    """
    log_p = y[1]
    dscores = dweights = None
    if g.flows(0):
        terms = Terms.of(g[0], labels, weights, ignore_index, reduction)
        dscores = terms.by_scores(log_p)
        dweights = terms.by_weights(log_p, y[0], weights)
    if g.flows(1):
        through_log_p = g[1] - log_p.exp() * g[1].sum(1, keepdims=True)
        dscores = through_log_p if dscores is None else dscores + through_log_p
    return dscores, None, dweights


@vjp("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(
    g: Value,
    y: Value,
    x: Value,
    target: Value,
    weight: Value | None,
    *,
    ignore_index: int | None,
    reduction: str,
) -> tuple[Value, None, Value | None]:
    """y = -w x[target]        dx = -q at the target        q = g w (mean: over sum(w))"""
    terms = Terms.of(g, target, weight, ignore_index, reduction)
    slope = -terms.slope.cast(x.elem_type).unsqueeze(1)
    dx = scatter(slope, terms.index, shape_of(x), 1, repeats=False)
    return typed_as(dx, x), None, terms.by_weights(x, y, weight)


@dataclass(frozen=True)
class Terms:
    """The terms that a loss is reduced from, one for every label."""

    labels: Value
    """The labels, 0 where one is ignored."""
    valid: Value | None
    """Which ones are not ignored; all of them if None."""
    seed: Value
    """The cotangent of each term, before it is weighted."""
    slope: Value
    """What the loss falls by as the logarithm of the label's probability rises."""
    reduction: str

    @classmethod
    def of(
        cls,
        g: Value,
        labels: Value,
        weights: Value | None,
        ignore_index: int | Value | None,
        reduction: str,
    ) -> Terms:
        """The terms of a loss whose cotangent is `g`."""
        g = widened(g)
        valid = None
        if ignore_index is not None:
            valid = ~labels.equal(ignore_index)
            labels = where(valid, labels, 0)
        weight = None
        if weights is not None:
            weight = op.Gather(weights.cast(g.elem_type), labels)
            weight = weight if valid is None else where(valid, weight, 0)
        elif valid is not None:
            weight = valid.cast(g.elem_type)
        if reduction == "mean":
            g = g / (_number(labels, g) if weight is None else weight.sum())
        seed = expand_like(g, labels)
        slope = seed if weight is None else seed * weight
        if valid is not None:  # where all is ignored 0 is divided by 0
            slope = where(valid, slope, 0)
        return cls(labels, valid, seed, slope, reduction)

    @property
    def index(self) -> Value:
        """The labels as indices along the axis of classes."""
        return self.labels.unsqueeze(1)

    def by_scores(self, log_p: Value) -> Value:
        """The gradient of the scores: what the softmax has more than the label, by the slope."""
        p = log_p.exp()
        falls = self.slope.cast(p.elem_type).unsqueeze(1)
        slope = p * falls
        changed = op.GatherElements(slope, self.index, axis=1) - falls
        return typed_as(op.ScatterElements(slope, self.index, changed, axis=1), log_p)

    def by_weights(self, log_p: Value, loss: Value, weights: Value | None) -> Value | None:
        """The gradient of the class weights: the loss of each label, less the mean if it is one."""
        if weights is None:
            return None
        losses = -op.GatherElements(log_p, self.index, axis=1).squeeze(1).cast(self.seed.elem_type)
        if self.reduction == "mean":
            losses = losses - loss.cast(self.seed.elem_type)
        terms = self.seed * losses
        if self.valid is not None:
            terms = where(self.valid, terms, 0)
        classes = weights.shape[0] if isinstance(weights.shape[0], int) else op.Shape(weights)
        flat, labels = reshape(terms, [-1]), reshape(self.labels.cast(np.int64), [-1])
        return typed_as(add_along(flat, labels, classes, 0), weights).cast(weights.elem_type)


def _number(labels: Value, like: Value) -> Value | float:
    """How many labels there are, in the type of another tensor."""
    count = count_of(labels)
    return float(count) if isinstance(count, int) else count.cast(like.elem_type).squeeze(0)
