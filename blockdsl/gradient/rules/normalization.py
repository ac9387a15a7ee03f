"""Rules of normalizations to mean 0 and variance 1.

In their formulas z is the normalized tensor, r the reciprocal standard deviation, and mean(...)
runs over the elements that are normalized together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import TensorProto

from blockdsl.functional.padding import length_of
from blockdsl.functional.runtime_shapes import reshape_to
from blockdsl.functional.scatter_sums import count_of
from blockdsl.functional.sliding_windows import divided
from blockdsl.functional.standardization import standardize, standardize_vjp
from blockdsl.gradient.composites import composite
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.portable import sign, where, widened
from blockdsl.graph.shapes import dims_of, reshape, reshape_like, share_of, sum_to
from blockdsl.graph.value import Value


@vjp("BatchNormalization", wide=True)
def batch_normalization(
    g: Any,
    y: Any,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    var: Value,
    *,
    epsilon: float,
    momentum: float,
    spatial: int | None,
    training_mode: int,
) -> tuple[Value | None, ...]:
    """y = scale z + bias        dx = scale r (g - mean(g) - z mean(g z))        dscale = sum(g z)

    In inference form, where mean and variance are inputs, dx = scale r g, dmean = -sum(scale r g)
    and dvar = -sum(scale r² g z) / 2. Before opset 14 a node with several outputs trains; before
    opset 9 spatial=0 normalises every position of a channel by itself.
    """
    axes = [0] if spatial == 0 else [0, *range(2, x.rank)]

    def spread(statistic: Value) -> Value:
        return statistic if spatial == 0 else _channels(statistic, x)

    if not training_mode:
        centred, root = x - spread(mean), 1 / (var + epsilon).sqrt()
        slope = scale * root
        total, aligned = g[0].sum(axes), (g[0] * centred).sum(axes) * root
        dmean, dvar = -slope * total, slope * root * aligned * -0.5
        return g[0] * spread(slope), aligned, total, dmean, dvar
    z, root = standardize(x, axes, epsilon)
    rest, total, aligned = standardize_vjp(g[0], z, axes)
    dx = spread(scale) * root * rest
    dmean = dvar = None
    fresh = (1 - momentum) * share_of(x, axes)
    if g.flows(1):
        dmean = g[1] * momentum
        dx = dx + spread(g[1] * fresh)
    if g.flows(2):
        dvar = g[2] * momentum
        dx = dx + z / root * spread(g[2] * (2 * fresh))
    dscale, dbias = (reshape_like(t, scale) for t in (aligned, total))
    return dx, dscale, dbias, dmean, dvar


@composite("BatchNormalization")
def batch_normalization_in_training(
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
    """y = scale (x - m) / sqrt(v + epsilon) + bias        for mean m and variance v of the batch

    What the operator is made of in training form, for opsets before 14: runtimes have kernels for
    its inference form alone.
    """
    axes = [0, *range(2, x.rank)]
    wide = widened(x)
    centre = wide.mean(axes, keepdims=True)
    centred = wide - centre
    spread = centred.square().mean(axes, keepdims=True)
    slope = _channels(widened(scale), x) / (spread + epsilon).sqrt()
    y = centred * slope + _channels(widened(bias), x)
    saved_mean, saved_var = (
        reshape_like(new, old).cast(old.elem_type) for old, new in ((mean, centre), (var, spread))
    )
    running_mean = mean * momentum + saved_mean * (1 - momentum)
    running_var = var * momentum + saved_var * (1 - momentum)
    return y.cast(x.elem_type), running_mean, running_var, saved_mean, saved_var


@vjp("InstanceNormalization", wide=True)
def instance_normalization(
    g: Value, y: Value, x: Value, scale: Value, bias: Value, *, epsilon: float
) -> tuple[Value, Value, Value]:
    """y = scale z + bias        dx = scale r (g - mean g - z mean(g z))        dscale = sum(g z)"""
    axes = list(range(2, x.rank))
    z, root = standardize(x, axes, epsilon)
    rest, total, aligned = standardize_vjp(g, z, axes)
    dscale, dbias = (reshape_like(t.sum(0), scale) for t in (aligned, total))
    return _channels(scale, x) * root * rest, dscale, dbias


@vjp("GroupNormalization", wide=True)
def group_normalization(
    g: Value, y: Value, x: Value, scale: Value, bias: Value, *, epsilon: float, num_groups: int
) -> tuple[Value, Value, Value]:
    """y = scale z + bias        dx = r (h - mean(h) - z mean(h z))        dscale = sum(g z)

    h is scale g. Before opset 21 scale and bias have one element a group, later one a channel.
    """
    each, positions = divided(length_of(x, 1), num_groups), count_of(x, range(2, x.rank))
    parts = dims_of(x, [0]), num_groups, each, positions
    grouped, seed = reshape_to(x, *parts), reshape_to(g, *parts)
    per_group = [1, 1] if x.graph.opset() < 21 else [-1, 1]
    factor = reshape(scale, [num_groups, *per_group])
    z, root = standardize(grouped, [2, 3], epsilon)
    rest, _, _ = standardize_vjp(seed * factor, z, [2, 3])
    dscale, dbias = (reshape_like(sum_to(t, factor), scale) for t in (seed * z, seed))
    return reshape_like(root * rest, x), dscale, dbias


@vjp("LayerNormalization", wide=True)
def layer_normalization(
    g: Any,
    y: Any,
    x: Value,
    scale: Value,
    bias: Value | None,
    *,
    axis: int,
    epsilon: float,
    stash_type: int,
) -> tuple[Value, Value, Value | None]:
    """y = scale z + bias        dx = r (h - mean(h) - z mean(h z))        dscale = sum(g z)

    h is scale g.
    """
    axes = list(range(axis % x.rank, x.rank))
    if stash_type == x.elem_type == TensorProto.FLOAT:
        root = y[2]
        z = (x - y[1]) * root
    else:
        z, root = standardize(x, axes, epsilon)
    rest, _, _ = standardize_vjp(g[0] * scale, z, axes)
    dx = root * rest
    if g.flows(1):  # Mean and InvStdDev are of the type stash_type
        dx = dx + g[1].cast(x.elem_type) * share_of(x, axes)
    if g.flows(2):
        dx = dx - z * root.square() * (g[2].cast(x.elem_type) * share_of(x, axes))
    return dx, sum_to(g[0] * z, scale), None if bias is None else sum_to(g[0], bias)


@vjp("RMSNormalization", wide=True)
def rms_normalization(
    g: Value, y: Value, x: Value, scale: Value, *, axis: int, epsilon: float
) -> tuple[Value, Value]:
    """y = scale z, z = x r        dx = r (h - z mean(h z)), h = scale g        dscale = sum(g z)"""
    axes = list(range(axis % x.rank, x.rank))
    root = 1 / (x.square().mean(axes, keepdims=True) + epsilon).sqrt()
    z, h = x * root, g * scale
    return root * (h - z * (h * z).mean(axes, keepdims=True)), sum_to(g * z, scale)


@vjp("MeanVarianceNormalization", wide=True)
def mean_variance_normalization(g: Value, y: Value, x: Value, *, axes: Sequence[int]) -> Value:
    """y = c / (s + e), c = x - mean(x)        dx = (g - mean(g) - c mean(g y) / s) / (s + e)

    e is 1e-9, and where s is 0 so is the term that is divided by it.
    """
    over = [a % x.rank for a in axes]
    centred = x - x.mean(over, keepdims=True)
    spread = centred.square().mean(over, keepdims=True).sqrt()
    slope = (g * y).mean(over, keepdims=True) / where(spread > 0, spread, 1)
    return (g - g.mean(over, keepdims=True) - centred * slope) / (spread + 1e-9)


@vjp("LRN", wide=True)
def local_response_normalization(
    g: Value, y: Value, x: Value, *, alpha: float, beta: float, bias: float, size: int
) -> Value:
    """y = x s^-beta, s = bias + alpha mean(x²)        dx = g s^-beta - 2 alpha beta x mean(g y / s)

    The means are over neighbouring channels, the second one over those that have this neighbour.
    """
    base = bias + alpha * _over_neighbours(x.square(), size, (size - 1) // 2)
    power = base**-beta
    spread = _over_neighbours(g * x * power / base, size, size // 2)
    return g * power - 2 * alpha * beta * x * spread


def _over_neighbours(x: Value, size: int, before: int) -> Value:
    """The sum over neighbouring channels, divided by their number also where there are fewer."""
    planes = reshape_to(x, dims_of(x, [0]), 1, length_of(x, 1), count_of(x, range(2, x.rank)))
    pads = [before, 0, size - 1 - before, 0]
    means = op.AveragePool(planes, kernel_shape=[size, 1], pads=pads, count_include_pad=1)
    return reshape_like(means, x)


@vjp("LpNormalization", wide=True)
def lp_normalization(g: Value, y: Value, x: Value, *, axis: int, p: int) -> Value:
    """y = x / n, n = (sum |x|^p)^(1/p)        dx = (g - u sum(g y)) / n, u = y (p = 1: sign(x))

    Where n is 0 so is the gradient.
    """
    reduce = op.ReduceL1 if p == 1 else op.ReduceL2
    norm = reduce(x, axes=[axis], keepdims=1)
    positive = norm > 0
    norm = where(positive, norm, 1)
    unit = sign(x) if p == 1 else x / norm
    along = (g * x / norm).sum(axis, keepdims=True)
    return (g - unit * along) * (positive.cast(x.elem_type) / norm)


def _channels(x: Value, like: Value) -> Value:
    """A vector with one element a channel, ready to be broadcast along the other axes."""
    return x.unsqueeze(*range(1, like.rank - 1))
