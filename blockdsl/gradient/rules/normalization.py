"""Rules of normalisations to mean zero and variance one.

In their formulas z is the normalised tensor, r what the centred one is multiplied by to get it, and
mean(...) runs over what is normalised together. What is float16 or bfloat16 is computed in float32:
sums over so many terms need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import TensorProto

from blockdsl.gradient.composites import composite
from blockdsl.gradient.registry import vjp
from blockdsl.gradient.rules.placing import length_of
from blockdsl.gradient.rules.reshaping import reshape_to
from blockdsl.gradient.rules.scattering import count_of
from blockdsl.gradient.rules.windows import divided
from blockdsl.graph import op
from blockdsl.graph.portable import sign, where, widened
from blockdsl.graph.shapes import dims_of, reshape, reshape_like, share_of, sum_to
from blockdsl.graph.value import Value


@vjp("BatchNormalization")
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

    if not training_mode and not (x.graph.opset() < 14 and y.declared(1)):
        seed, centred = widened(g[0]), widened(x) - spread(widened(mean))
        root = 1 / (widened(var) + epsilon).sqrt()
        slope = widened(scale) * root
        total, aligned = seed.sum(axes), (seed * centred).sum(axes) * root
        return (
            (seed * spread(slope)).cast(x.elem_type),
            aligned.cast(scale.elem_type),
            total.cast(bias.elem_type),
            (-slope * total).cast(mean.elem_type),
            (slope * root * aligned * -0.5).cast(var.elem_type),
        )
    wide = widened(x)
    z, root = standardized(wide, axes, epsilon)
    rest, total, aligned = through_standardized(widened(g[0]), z, axes)
    dx = spread(widened(scale)) * root * rest
    dmean = dvar = None
    fresh = (1 - momentum) * share_of(wide, axes)
    if g.flows(1):
        dmean = (g[1] * momentum).cast(mean.elem_type)
        dx = dx + spread(widened(g[1]) * fresh)
    if g.flows(2):
        dvar = (g[2] * momentum).cast(var.elem_type)
        dx = dx + z / root * spread(widened(g[2]) * (2 * fresh))
    dscale, dbias = (reshape_like(t, scale) for t in (aligned, total))
    return (
        dx.cast(x.elem_type),
        dscale.cast(scale.elem_type),
        dbias.cast(bias.elem_type),
        dmean,
        dvar,
    )


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


@vjp("InstanceNormalization")
def instance_normalization(
    g: Value, y: Value, x: Value, scale: Value, bias: Value, *, epsilon: float
) -> tuple[Value, Value, Value]:
    """y = scale z + bias        dx = scale r (g - mean g - z mean(g z))        dscale = sum(g z)"""
    axes = list(range(2, x.rank))
    z, root = standardized(widened(x), axes, epsilon)
    rest, total, aligned = through_standardized(widened(g), z, axes)
    dx = _channels(widened(scale), x) * root * rest
    dscale, dbias = (reshape_like(t.sum(0), scale) for t in (aligned, total))
    return dx.cast(x.elem_type), dscale.cast(scale.elem_type), dbias.cast(bias.elem_type)


@vjp("GroupNormalization")
def group_normalization(
    g: Value, y: Value, x: Value, scale: Value, bias: Value, *, epsilon: float, num_groups: int
) -> tuple[Value, Value, Value]:
    """y = scale z + bias        dx = r (h - mean(h) - z mean(h z))        dscale = sum(g z)

    h is scale g. Before opset 21 scale and bias have one element a group, later one a channel.
    """
    each, positions = divided(length_of(x, 1), num_groups), count_of(x, range(2, x.rank))
    parts = dims_of(x, [0]), num_groups, each, positions
    grouped, seed = reshape_to(widened(x), *parts), reshape_to(widened(g), *parts)
    per_group = [1, 1] if x.graph.opset() < 21 else [-1, 1]
    factor = reshape(widened(scale), [num_groups, *per_group])
    z, root = standardized(grouped, [2, 3], epsilon)
    rest, _, _ = through_standardized(seed * factor, z, [2, 3])
    dx = reshape_like(root * rest, x)
    dscale, dbias = (reshape_like(sum_to(t, factor), scale) for t in (seed * z, seed))
    return dx.cast(x.elem_type), dscale.cast(scale.elem_type), dbias.cast(bias.elem_type)


@vjp("LayerNormalization")
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
    wide, seed = widened(x), widened(g[0])
    if stash_type == wide.elem_type == TensorProto.FLOAT:
        root = y[2]
        z = (wide - y[1]) * root
    else:
        z, root = standardized(wide, axes, epsilon)
    rest, _, _ = through_standardized(seed * widened(scale), z, axes)
    dx = root * rest
    if g.flows(1):
        dx = dx + g[1].cast(wide.elem_type) * share_of(wide, axes)
    if g.flows(2):
        dx = dx - z * root.square() * (g[2].cast(wide.elem_type) * share_of(wide, axes))
    dscale = sum_to(seed * z, scale).cast(scale.elem_type)
    return dx.cast(x.elem_type), dscale, bias and sum_to(seed, bias).cast(bias.elem_type)


@vjp("RMSNormalization")
def rms_normalization(
    g: Value, y: Value, x: Value, scale: Value, *, axis: int, epsilon: float
) -> tuple[Value, Value]:
    """y = scale z, z = x r        dx = r (h - z mean(h z)), h = scale g        dscale = sum(g z)"""
    axes = list(range(axis % x.rank, x.rank))
    wide, seed = widened(x), widened(g)
    root = 1 / (wide.square().mean(axes, keepdims=True) + epsilon).sqrt()
    z = wide * root
    h = seed * widened(scale)
    dx = root * (h - z * (h * z).mean(axes, keepdims=True))
    return dx.cast(x.elem_type), sum_to(seed * z, scale).cast(scale.elem_type)


@vjp("MeanVarianceNormalization")
def mean_variance_normalization(g: Value, y: Value, x: Value, *, axes: Sequence[int]) -> Value:
    """y = c / (s + e), c = x - mean(x)        dx = (g - mean(g) - c mean(g y) / s) / (s + e)

    e is 1e-9, and where s is 0 so is the term that is divided by it.
    """
    over = [a % x.rank for a in axes]
    wide, seed, result = widened(x), widened(g), widened(y)
    centred = wide - wide.mean(over, keepdims=True)
    spread = centred.square().mean(over, keepdims=True).sqrt()
    slope = (seed * result).mean(over, keepdims=True) / where(spread > 0, spread, 1)
    dx = (seed - seed.mean(over, keepdims=True) - centred * slope) / (spread + 1e-9)
    return dx.cast(x.elem_type)


@vjp("LRN")
def local_response_normalization(
    g: Value, y: Value, x: Value, *, alpha: float, beta: float, bias: float, size: int
) -> Value:
    """y = x s^-beta, s = bias + alpha mean(x²)        dx = g s^-beta - 2 alpha beta x mean(g y / s)

    The means are over neighbouring channels, the second one over those that have this neighbour.
    """
    wide, seed = widened(x), widened(g)
    base = bias + alpha * _over_neighbours(wide.square(), size, (size - 1) // 2)
    power = base**-beta
    spread = _over_neighbours(seed * wide * power / base, size, size // 2)
    return (seed * power - 2 * alpha * beta * wide * spread).cast(x.elem_type)


def _over_neighbours(x: Value, size: int, before: int) -> Value:
    """The sum over neighbouring channels, divided by their number also where there are fewer."""
    planes = reshape_to(x, dims_of(x, [0]), 1, length_of(x, 1), count_of(x, range(2, x.rank)))
    pads = [before, 0, size - 1 - before, 0]
    means = op.AveragePool(planes, kernel_shape=[size, 1], pads=pads, count_include_pad=1)
    return reshape_like(means, x)


@vjp("LpNormalization")
def lp_normalization(g: Value, y: Value, x: Value, *, axis: int, p: int) -> Value:
    """y = x / n, n = (sum |x|^p)^(1/p)        dx = (g - u sum(g y)) / n, u = y (p = 1: sign(x))

    Where n is 0 so is the gradient.
    """
    wide, seed = widened(x), widened(g)
    reduce = op.ReduceL1 if p == 1 else op.ReduceL2
    norm = reduce(wide, axes=[axis], keepdims=1)
    positive = norm > 0
    norm = where(positive, norm, 1)
    unit = sign(wide) if p == 1 else wide / norm
    along = (seed * wide / norm).sum(axis, keepdims=True)
    dx = (seed - unit * along) * (positive.cast(wide.elem_type) / norm)
    return dx.cast(x.elem_type)


def standardized(x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value]:
    """`x` normalised over some axes, and what it was multiplied by after it was centred."""
    centred = x - x.mean(axes, keepdims=True)
    root = 1 / (centred.square().mean(axes, keepdims=True) + epsilon).sqrt()
    return centred * root, root


def through_standardized(g: Value, z: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """The difference g - mean(g) - z mean(g z), and the sums of g and of g z."""
    share = share_of(z, axes)
    total, aligned = (t.sum(axes, keepdims=True) for t in (g, g * z))
    return g - total * share - z * (aligned * share), total, aligned


def _channels(x: Value, like: Value) -> Value:
    """A vector with one element a channel, ready to be broadcast along the other axes."""
    return x.unsqueeze(*range(1, like.rank - 1))
