"""Rules of normalisations to mean zero and variance one.

In their formulas z is the normalised tensor, r what the centred one is multiplied by to get it, and
mean(...) runs over what is normalised together. What is float16 or bfloat16 is computed in float32:
sums over so many terms need it.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto

from blockdsl.errors import GradientError
from blockdsl.gradient.registry import vjp
from blockdsl.gradient.rules.placing import length_of
from blockdsl.gradient.rules.reshaping import reshape_to
from blockdsl.gradient.rules.scattering import count_of
from blockdsl.gradient.rules.windows import divided
from blockdsl.graph import op
from blockdsl.graph.portable import sign, where
from blockdsl.graph.shapes import dims_of, reshape, reshape_like, size_of, sum_to
from blockdsl.graph.value import Value

_NARROW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


@vjp("BatchNormalization")
def batch_normalization(
    g: Sequence[Value],
    y: Sequence[Value],
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
) -> tuple[Value, ...]:
    """y = scale z + bias        dx = scale r (g - mean(g) - z mean(g z))        dscale = sum(g z)

    In inference form, where mean and variance are inputs, dx = scale r g, dmean = -sum(scale r g)
    and dvar = -sum(scale r² g z) / 2. Before opset 14 a node with several outputs trains.
    """
    if spatial == 0:
        raise GradientError(
            "BatchNormalization with spatial=0 normalises every position by itself, which has no "
            "gradient rule. Write it with ReduceMean, Sub and Mul, or use spatial=1."
        )
    axes = [0, *range(2, x.rank)]
    trains = training_mode or (x.graph.opset() < 14 and y.declared(1))
    wide, seed = _wide(x), _wide(g[0])
    factor = _channels(_wide(scale), x)
    if not trains:
        root = 1 / (_channels(_wide(var), x) + epsilon).sqrt()
        total, aligned = seed.sum(axes), (seed * (wide - _channels(_wide(mean), x)) * root).sum(axes)
        slope = factor * root
        dmean = reshape_like(slope, total) * -total
        dvar = reshape_like(slope * root, total) * aligned * -0.5
        return (
            (seed * slope).cast(x.elem_type),
            aligned.cast(scale.elem_type),
            total.cast(bias.elem_type),
            dmean.cast(mean.elem_type),
            dvar.cast(var.elem_type),
        )
    z, root = standardized(wide, axes, epsilon)
    rest, total, aligned = through_standardized(seed, z, axes)
    dx = factor * root * rest
    dmean = dvar = None
    count = size_of(wide, axes)
    if g.flows(1):
        dmean = _wide(g[1]) * momentum
        dx = dx + _channels(_wide(g[1]) * ((1 - momentum) / count), x)
    if g.flows(2):
        dvar = _wide(g[2]) * momentum
        dx = dx + z / root * _channels(_wide(g[2]) * (2 * (1 - momentum) / count), x)
    return (
        dx.cast(x.elem_type),
        reshape_like(aligned, scale).cast(scale.elem_type),
        reshape_like(total, bias).cast(bias.elem_type),
        dmean and dmean.cast(mean.elem_type),
        dvar and dvar.cast(var.elem_type),
    )


def normalized_by_batch(
    x: Value, scale: Value, bias: Value, mean: Value, var: Value, epsilon: float, momentum: float
) -> tuple[Value, Value, Value]:
    """Batch normalisation in training form, by its mathematics.

    CUDA kernels of ONNX Runtime have it up to opset 13 only; a training graph that is to run there
    needs this in the place of the operator.

    Returns:
        The normalised tensor, and the running mean and variance.
    """
    axes = [0, *range(2, x.rank)]
    wide = _wide(x)
    centre = wide.mean(axes, keepdims=True)
    z, root = standardized(wide, axes, epsilon)
    spread = 1 / root.square() - epsilon
    y = z * _channels(_wide(scale), x) + _channels(_wide(bias), x)
    running = (
        old * momentum + reshape_like(new, old).cast(old.elem_type) * (1 - momentum)
        for old, new in ((mean, centre), (var, spread))
    )
    return y.cast(x.elem_type), *running


@vjp("InstanceNormalization")
def instance_normalization(
    g: Value, y: Value, x: Value, scale: Value, bias: Value, *, epsilon: float
) -> tuple[Value, Value, Value]:
    """y = scale z + bias        dx = scale r (g - mean(g) - z mean(g z))        dscale = sum(g z)"""
    axes = list(range(2, x.rank))
    z, root = standardized(_wide(x), axes, epsilon)
    rest, total, aligned = through_standardized(_wide(g), z, axes)
    dx = _channels(_wide(scale), x) * root * rest
    dscale, dbias = (reshape_like(t.sum(0), scale) for t in (aligned, total))
    return dx.cast(x.elem_type), dscale.cast(scale.elem_type), dbias.cast(bias.elem_type)


@vjp("GroupNormalization")
def group_normalization(
    g: Value, y: Value, x: Value, scale: Value, bias: Value, *, epsilon: float, num_groups: int
) -> tuple[Value, Value, Value]:
    """y = scale z + bias        dx = r (h - mean(h) - z mean(h z)), h = scale g        dscale = sum(g z)

    Before opset 21 scale and bias have one element a group, later one a channel.
    """
    each, positions = divided(length_of(x, 1), num_groups), count_of(x, range(2, x.rank))
    parts = dims_of(x, [0]), num_groups, each, positions
    grouped, seed = reshape_to(_wide(x), *parts), reshape_to(_wide(g), *parts)
    per_group = [1, 1] if x.graph.opset() < 21 else [-1, 1]
    factor = reshape(_wide(scale), [num_groups, *per_group])
    z, root = standardized(grouped, [2, 3], epsilon)
    rest, _, _ = through_standardized(seed * factor, z, [2, 3])
    dx = reshape_like(root * rest, x)
    dscale, dbias = (reshape_like(sum_to(t, factor), scale) for t in (seed * z, seed))
    return dx.cast(x.elem_type), dscale.cast(scale.elem_type), dbias.cast(bias.elem_type)


@vjp("LayerNormalization")
def layer_normalization(
    g: Sequence[Value],
    y: Sequence[Value],
    x: Value,
    scale: Value,
    bias: Value | None,
    *,
    axis: int,
    epsilon: float,
    stash_type: int,
) -> tuple[Value, Value, Value | None]:
    """y = scale z + bias        dx = r (h - mean(h) - z mean(h z)), h = scale g        dscale = sum(g z)"""
    axes = list(range(axis % x.rank, x.rank))
    wide, seed = _wide(x), _wide(g[0])
    if stash_type == wide.elem_type == TensorProto.FLOAT:
        root = y[2]
        z = (wide - y[1]) * root
    else:
        z, root = standardized(wide, axes, epsilon)
    rest, _, _ = through_standardized(seed * _wide(scale), z, axes)
    dx = root * rest
    if g.flows(1):
        dx = dx + g[1].cast(wide.elem_type) / size_of(wide, axes)
    if g.flows(2):
        dx = dx - z * root.square() * (g[2].cast(wide.elem_type) / size_of(wide, axes))
    dscale = sum_to(seed * z, scale).cast(scale.elem_type)
    return dx.cast(x.elem_type), dscale, bias and sum_to(seed, bias).cast(bias.elem_type)


@vjp("RMSNormalization")
def rms_normalization(
    g: Value, y: Value, x: Value, scale: Value, *, axis: int, epsilon: float
) -> tuple[Value, Value]:
    """y = scale z, z = x r        dx = r (h - z mean(h z)), h = scale g        dscale = sum(g z)"""
    axes = list(range(axis % x.rank, x.rank))
    wide, seed = _wide(x), _wide(g)
    root = 1 / (wide.square().mean(axes, keepdims=True) + epsilon).sqrt()
    z = wide * root
    h = seed * _wide(scale)
    dx = root * (h - z * (h * z).mean(axes, keepdims=True))
    return dx.cast(x.elem_type), sum_to(seed * z, scale).cast(scale.elem_type)


@vjp("MeanVarianceNormalization")
def mean_variance_normalization(
    g: Value, y: Value, x: Value, *, axes: Sequence[int]
) -> Value:
    """y = (x - mean(x)) / (s + 1e-9)        dx = (g - mean(g) - (x - mean(x)) mean(g y) / s) / (s + 1e-9)"""
    over = [a % x.rank for a in axes]
    wide, seed, result = _wide(x), _wide(g), _wide(y)
    centred = wide - wide.mean(over, keepdims=True)
    spread = centred.square().mean(over, keepdims=True).sqrt()
    slope = (seed * result).mean(over, keepdims=True) / where(spread > 0, spread, 1)
    dx = (seed - seed.mean(over, keepdims=True) - centred * slope) / (spread + 1e-9)
    return dx.cast(x.elem_type)


@vjp("LRN")
def local_response_normalization(
    g: Value, y: Value, x: Value, *, alpha: float, beta: float, bias: float, size: int
) -> Value:
    """y = x s^-beta, s = bias + alpha mean(x²)        dx = g s^-beta - 2 alpha beta x meanᵀ(g y / s)

    The means are over neighbouring channels.
    """
    wide, seed = _wide(x), _wide(g)
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
    """y = x / n, n = (sum of |x|^p)^(1/p)        dx = (g - u sum(g y)) / n, u = y, or sign(x) for p = 1

    Where n is 0 so is the gradient.
    """
    wide, seed = _wide(x), _wide(g)
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
    """g - mean(g) - z mean(g z), and the sums of g and of g z."""
    count = size_of(z, axes)
    total, aligned = (t.sum(axes, keepdims=True) for t in (g, g * z))
    return g - total / count - z * (aligned / count), total, aligned


def _wide(x: Value) -> Value:
    """`x` in a type that sums over many terms are exact enough in."""
    return x.cast(TensorProto.FLOAT) if x.elem_type in _NARROW else x


def _channels(x: Value, like: Value) -> Value:
    """A vector with one element a channel, ready to be broadcast along the other axes."""
    return x.unsqueeze(*range(1, like.rank - 1))
