"""Normalisation in training, and its gradients, from what was normalised or what came of it."""

from __future__ import annotations

from collections.abc import Sequence

from blockdsl.functional.standardization import standardize_vjp
from blockdsl.gradient.rules.normalization import batch_normalization_in_training
from blockdsl.graph import op
from blockdsl.graph.shapes import reshape_like, sum_to
from blockdsl.graph.value import Value
from blockdsl.training_ops.registry import training_operator


@training_operator("LayerNormalizationGrad")
def layer_normalization_grad(
    dy: Value,
    x: Value,
    scale: Value,
    mean: Value,
    root: Value,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Value, ...]:
    """dx = r (h - mean(h) - z mean(h z)), h = scale dy        z = r (x - mean)"""
    return _back(dy, (x.cast(root.elem_type) - mean) * root, root, scale, _from(axis, x))


@training_operator("InvertibleLayerNormalizationGrad")
def invertible_layer_normalization_grad(
    dy: Value,
    y: Value,
    scale: Value,
    bias: Value,
    root: Value,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Value, ...]:
    """dx = r (h - mean(h) - z mean(h z)), h = scale dy        z = (y - bias) / scale"""
    z = ((y - bias) / scale).cast(root.elem_type)
    return _back(dy, z, root, scale, _from(axis, y))


@training_operator("SimplifiedLayerNormalizationGrad")
def simplified_layer_normalization_grad(
    dy: Value,
    x: Value,
    scale: Value,
    root: Value,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Value, Value]:
    """dx = r (h - z mean(h z)), h = scale dy, z = r x        dscale = sum(dy z)"""
    wide, seed = x.cast(root.elem_type), dy.cast(root.elem_type)
    z = wide * root
    h = seed * scale.cast(root.elem_type)
    dx = root * (h - z * (h * z).mean(_from(axis, x), keepdims=True))
    return dx.cast(x.elem_type), sum_to(seed * z, scale).cast(scale.elem_type)


@training_operator("BatchNormalizationGrad")
def batch_normalization_grad(
    dy: Value, x: Value, scale: Value, mean: Value, root: Value, *, epsilon: float = 1e-5
) -> tuple[Value, ...]:
    """dx = scale r (dy - mean(dy) - z mean(dy z)), z = r (x - mean)        dscale = sum(dy z)"""
    axes = [0, *range(2, x.rank)]
    spread = range(1, x.rank - 1)
    mean, root, factor = (v.cast(x.elem_type).unsqueeze(*spread) for v in (mean, root, scale))
    rest, total, aligned = standardize_vjp(dy, (x - mean) * root, axes)
    dscale, dbias = (reshape_like(t, scale).cast(scale.elem_type) for t in (aligned, total))
    return factor * root * rest, dscale, dbias


@training_operator("BatchNormInternal")
def batch_norm_internal(
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    var: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 1,
) -> tuple[Value, ...]:
    """y = scale z + bias, the running statistics, and the mean and root of the batch"""
    if not training_mode:
        y = op.BatchNormalization(x, scale, bias, mean, var, epsilon=epsilon)
        return y, mean, var, mean, 1 / (var + epsilon).sqrt()
    y, *running, saved_mean, saved_var = batch_normalization_in_training(
        x, scale, bias, mean, var, epsilon=epsilon, momentum=momentum
    )
    return y, *running, saved_mean, 1 / (saved_var + epsilon).sqrt()


def _back(
    dy: Value, z: Value, root: Value, scale: Value, axes: Sequence[int]
) -> tuple[Value, Value, Value]:
    """The gradients of x, scale and bias, z being what x was normalised to."""
    seed = dy.cast(z.elem_type)
    rest, _, _ = standardize_vjp(seed * scale.cast(z.elem_type), z, axes)
    dscale, dbias = (sum_to(t, scale).cast(scale.elem_type) for t in (seed * z, seed))
    return (root * rest).cast(dy.elem_type), dscale, dbias


def _from(axis: int, x: Value) -> list[int]:
    return list(range(axis % x.rank, x.rank))
