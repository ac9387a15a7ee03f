"""Layers that ONNX Runtime's optimisers fuse with what stands before and after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from blockdsl.errors import GradientError
from blockdsl.functional.standardization import layer_norm
from blockdsl.gradient.composites import composite
from blockdsl.gradient.registry import vjp
from blockdsl.gradient.rules.normalization import rms_normalization
from blockdsl.graph import current, op
from blockdsl.graph.microsoft import DEFAULT_DOMAIN
from blockdsl.graph.schema import MICROSOFT
from blockdsl.graph.shapes import dims_of, positions
from blockdsl.graph.value import Value

_TINY = 1e-12
"""The epsilon of the fused normalisations."""


@composite("FusedGemm", domain=MICROSOFT)
def fused_gemm(
    a: Value,
    b: Value,
    c: Value | None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803  the schema's name
    transB: int = 0,  # noqa: N803
) -> Value:
    """y = f(alpha a' b' + beta c)"""
    product = op.Gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    settings = {"alpha": activation_alpha, "beta": activation_beta, "gamma": activation_gamma}
    return _activated(product, activation, settings)


@composite("FusedConv", domain=MICROSOFT)
def fused_conv(
    x: Value,
    w: Value,
    b: Value | None,
    z: Value | None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    auto_pad: str | None = None,
    dilations: Sequence[int] | None = None,
    group: int | None = None,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """y = f(conv(x, w) + b + z)"""
    y = op.Conv(
        x,
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    names = ("min", "max") if activation == "Clip" else ("alpha", "beta")
    settings = dict(zip(names, activation_params, strict=False))
    return _activated(y if z is None else y + z, activation, settings)


def _activated(y: Value, name: str, settings: Mapping[str, float | None]) -> Value:
    if not name:
        return y
    given = {key: value for key, value in settings.items() if value is not None}
    result: Value = getattr(op, name)(y, **given)
    return result


@vjp("SimplifiedLayerNormalization", wide=True)
def simplified_layer_normalization(
    g: Any,
    y: Any,
    x: Value,
    scale: Value,
    *,
    axis: int | None,
    epsilon: float | None,
) -> tuple[Value, Value]:
    """y = scale z, z = x r        dx = r (h - z mean(h z)), h = scale g        dscale = sum(g z)"""
    if g.flows(1):
        raise GradientError("The second output of SimplifiedLayerNormalization has no gradient.")
    last = -1 if axis is None else axis
    return rms_normalization(
        g[0], y[0], x, scale, axis=last, epsilon=1e-5 if epsilon is None else epsilon
    )


@composite("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified(
    x: Value, skip: Value, gamma: Value, bias: Value | None, *, epsilon: float = _TINY
) -> tuple[Value | None, ...]:
    """y = gamma z, z = s r, s = x + skip + bias"""
    total = _total(x, skip, bias)
    form = DEFAULT_DOMAIN["SimplifiedLayerNormalization"]
    (y,) = current().add_node(form, [total, gamma], 1, {"axis": -1, "epsilon": epsilon})
    return y, None, None, total


@composite("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    x: Value,
    skip: Value,
    gamma: Value,
    beta: Value | None,
    bias: Value | None,
    *,
    epsilon: float = _TINY,
) -> tuple[Value | None, ...]:
    """y = gamma z + beta, z = (s - mean(s)) r, s = x + skip + bias"""
    total = _total(x, skip, bias)
    return layer_norm(total, gamma, beta, epsilon), None, None, total


@composite("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    input_ids: Value,
    segment_ids: Value | None,
    word_embedding: Value,
    position_embedding: Value,
    segment_embedding: Value | None,
    gamma: Value,
    beta: Value,
    mask: Value | None,
    position_ids: Value | None,
    *,
    epsilon: float = _TINY,
    mask_index_type: int = 0,
) -> tuple[Value, Value, Value]:
    """y = gamma z + beta, z = (s - mean(s)) r, s = word + position + segment"""
    places = positions(dims_of(input_ids, [1])) if position_ids is None else position_ids
    total = op.Gather(word_embedding, input_ids) + op.Gather(position_embedding, places)
    if segment_ids is not None and segment_embedding is not None:
        total = total + op.Gather(segment_embedding, segment_ids)
    counted = input_ids * 0 if mask is None else mask
    lengths = counted.sum(1)
    return layer_norm(total, gamma, beta, epsilon), lengths, total


def _total(x: Value, skip: Value, bias: Value | None) -> Value:
    return x + skip if bias is None else x + skip + bias
