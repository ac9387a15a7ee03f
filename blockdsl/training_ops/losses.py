"""Cross entropy and its gradient."""

from __future__ import annotations

import numpy as np

from blockdsl.errors import GradientError
from blockdsl.gradient.rules.nn_loss import Terms
from blockdsl.graph import op
from blockdsl.graph.value import Value
from blockdsl.training_ops.registry import refuse, training_operator

_IGNORED = -1
"""The label that the kernels ignore where none is named."""

refuse(
    "SoftmaxCrossEntropy",
    "SoftmaxCrossEntropyGrad",
    reason="no exporter writes it any more: use SoftmaxCrossEntropyLoss",
)
refuse(
    "SparseSoftmaxCrossEntropy",
    "SparseSoftmaxCrossEntropyGrad",
    domain="",
    reason="no exporter writes it any more: use SoftmaxCrossEntropyLoss",
)


@training_operator("SoftmaxCrossEntropyLossGrad")
def softmax_cross_entropy_loss_grad(
    dy: Value,
    log_p: Value,
    labels: Value,
    weights: Value | None,
    *,
    ignore_index: int = _IGNORED,
    reduction: str = "mean",
) -> Value:
    """dx = q (p - onehot(label))        q = dy w (mean: over sum(w))"""
    return Terms.of(dy, labels, weights, ignore_index, reduction).by_scores(log_p)


@training_operator("SoftmaxCrossEntropyLossInternal")
def softmax_cross_entropy_loss_internal(
    scores: Value,
    labels: Value,
    weights: Value | None,
    ignore_index: Value | None,
    *,
    output_type: int | None = None,
    reduction: str = "mean",
) -> tuple[Value, Value]:
    """loss = -w log p[label]        and log p"""
    loss, log_p = op.SoftmaxCrossEntropyLoss(
        scores,
        labels,
        weights,
        ignore_index=_known(ignore_index),
        reduction=reduction,
        outputs=2,
    )
    kind = output_type or scores.elem_type
    return loss.cast(kind), log_p.cast(kind)


@training_operator("SoftmaxCrossEntropyLossInternalGrad")
def softmax_cross_entropy_loss_internal_grad(
    dy: Value,
    log_p: Value,
    labels: Value,
    weights: Value | None,
    ignore_index: Value | None,
    bias: Value | None,
    *,
    output_type: int | None = None,
    reduction: str = "mean",
) -> Value:
    """dx = q (p - onehot(label)) + bias        q = dy w (mean: over sum(w))"""
    ignored = _IGNORED if ignore_index is None else ignore_index.cast(labels.elem_type)
    dx = Terms.of(dy, labels, weights, ignored, reduction).by_scores(log_p)
    dx = dx.cast(output_type or log_p.elem_type)
    return dx if bias is None else dx + bias


@training_operator("NegativeLogLikelihoodLossInternal", "NegativeLogLikelihoodLossInternal2")
def negative_log_likelihood_loss_internal(
    log_p: Value,
    labels: Value,
    weights: Value | None,
    ignore_index: Value | None,
    *,
    reduction: str = "mean",
) -> Value:
    """loss = -w log p[label]"""
    return op.NegativeLogLikelihoodLoss(
        log_p, labels, weights, ignore_index=_known(ignore_index), reduction=reduction
    )


def _known(ignore_index: Value | None) -> int:
    if ignore_index is None:
        return _IGNORED
    known = ignore_index.constant
    if known is None:
        raise GradientError(
            f"The label to ignore, {str(ignore_index)!r}, is computed: make it a constant."
        )
    return int(np.asarray(known).item())
