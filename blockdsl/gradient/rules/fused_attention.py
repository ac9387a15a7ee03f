"""Attention as ONNX Runtime fuses it: projections, heads, masks, caches and rotations in one.

In all of it tensors of heads have the shape (batch, heads, steps, size of a head); see `heads`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from blockdsl.errors import GradientError
from blockdsl.functional.attention_heads import (
    Scores,
    later,
    merge_heads,
    padding,
    rotated,
    split_heads,
)
from blockdsl.functional.padding import Count, length_of
from blockdsl.gradient.composites import composite
from blockdsl.graph import op
from blockdsl.graph.schema import MICROSOFT
from blockdsl.graph.shapes import dims_of, positions
from blockdsl.graph.value import Value

_FILTER = -10000.0
"""What is added to the scores of keys that are masked."""


def _summed(*terms: Value | None) -> Value | None:
    """The sum of those that are there."""
    total = None
    for term in terms:
        if term is not None:
            total = term if total is None else total + term
    return total


def _refuse(name: str, **given: object) -> None:
    """An error for what serves inference alone."""
    for key, value in given.items():
        if isinstance(value, Value) or value not in (None, 0, "NONE"):
            raise GradientError(
                f"{name} with {key!r} has no gradient: that form is for generating text step by "
                f"step. Train on whole sequences, without it."
            )


@composite("Attention", domain=MICROSOFT)
def attention(
    x: Value,
    weights: Value,
    bias: Value | None,
    mask_index: Value | None,
    past: Value | None,
    attention_bias: Value | None,
    past_sequence_length: Value | None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = _FILTER,
    num_heads: int,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Sequence[int] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
) -> tuple[Value, Value | None]:
    """y = softmax(a q k^T + mask) v, where q, k, v = x W + b"""
    _refuse(
        "com.microsoft::Attention",
        past_sequence_length=past_sequence_length,
        past_present_share_buffer=past_present_share_buffer,
        do_rotary=do_rotary,
    )
    width = weights.shape[1]
    if not isinstance(width, int):
        raise GradientError(f"The width of the weights {str(weights)!r} is not known.")
    projected = x @ weights if bias is None else x @ weights + bias
    sizes = list(qkv_hidden_sizes or [width // 3] * 3)
    q, k, v = (
        split_heads(part, num_heads) for part in op.Split(projected, sizes, axis=-1, outputs=3)
    )
    before: Count = 0
    if past is not None:
        before = length_of(past, 3)
        k, v = (op.Concat(past[i], new, axis=2) for i, new in enumerate((k, v)))
    scores = Scores(
        num_heads,
        num_heads,
        scale=scale,
        bias=_summed(padding(mask_index, k, mask_filter_value), attention_bias),
        hidden=later(q, k, before) if unidirectional else None,
    )
    present = op.Concat(k.unsqueeze(0), v.unsqueeze(0), axis=0) if sizes[0] == sizes[2] else None
    return scores.attend(q, k, v), present


@composite("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    query: Value,
    key: Value | None,
    value: Value | None,
    bias: Value | None,
    key_padding_mask: Value | None,
    attention_bias: Value | None,
    past_key: Value | None,
    past_value: Value | None,
    past_sequence_length: Value | None,
    cache_indirection: Value | None,
    *,
    mask_filter_value: float = _FILTER,
    num_heads: int,
    scale: float | None = None,
    unidirectional: int = 0,
) -> tuple[Value, Value, Value]:
    """y = softmax(a q k^T + mask) v"""
    _refuse(
        "com.microsoft::MultiHeadAttention",
        past_sequence_length=past_sequence_length,
        cache_indirection=cache_indirection,
    )
    q, k, v = _unpacked(query, key, value, num_heads)
    if bias is not None:
        keys_too = key is None or key.rank != 4
        q, k, v = _biased(bias, q, k, v, num_heads, keys_too)
    before: Count = 0
    if past_key is not None and past_value is not None:
        before = length_of(past_key, 2)
        k, v = op.Concat(past_key, k, axis=2), op.Concat(past_value, v, axis=2)
    scores = Scores(
        num_heads,
        num_heads,
        scale=scale,
        bias=_summed(padding(key_padding_mask, k, mask_filter_value), attention_bias),
        hidden=later(q, k, before) if unidirectional else None,
    )
    return scores.attend(q, k, v), k, v


def _unpacked(
    query: Value, key: Value | None, value: Value | None, heads: int
) -> tuple[Value, Value, Value]:
    """The heads of queries, keys and values, which may lie side by side in one tensor."""
    if key is None:
        q, k, v = (query[:, :, :, i].transpose(0, 2, 1, 3) for i in range(3))
        return q, k, v
    q = split_heads(query, heads)
    if value is None:
        k, v = (key[:, :, :, i].transpose(0, 2, 1, 3) for i in range(2))
        return q, k, v
    if key.rank == 4:
        return q, key, value
    return q, split_heads(key, heads), split_heads(value, heads)


def _biased(
    bias: Value, q: Value, k: Value, v: Value, heads: int, keys_too: bool
) -> tuple[Value, Value, Value]:
    """Heads with their biases; keys and values that come as heads have theirs already."""
    sizes = [heads * _size(x) for x in (q, k, v)]
    parts = op.Split(bias, sizes, axis=0, outputs=3)
    rows = [op.Reshape(part, [heads, 1, -1]) for part in parts]
    return (q + rows[0], k + rows[1], v + rows[2]) if keys_too else (q + rows[0], k, v)


def _size(x: Value) -> int:
    size = x.shape[3]
    if not isinstance(size, int):
        raise GradientError(f"The size of the heads of {str(x)!r} is not known, of {x.type}.")
    return size


@composite("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(
    x: Value,
    position_ids: Value,
    cos_cache: Value,
    sin_cache: Value,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Value:
    """y = (x1 cos - x2 sin, x1 sin + x2 cos), the halves of every head turned by its position"""
    _refuse("com.microsoft::RotaryEmbedding", is_packed_batching=is_packed_batching)
    half = cos_cache.shape[1]
    if not isinstance(half, int):
        raise GradientError(f"The width of {str(cos_cache)!r} is not known: give it a static one.")
    flat = x.rank == 3
    width = x.shape[-1]
    heads = num_heads or (width // (2 * half) if isinstance(width, int) else -1)
    split = x
    if flat and heads > 0:
        split = split_heads(x, heads)
    elif flat:
        split = op.Reshape(x, [0, 0, -1, 2 * half]).transpose(0, 2, 1, 3)
    places = position_ids
    if places.rank == 1:
        places = places + positions(dims_of(split, [2]))
    made = rotated(split, op.Gather(cos_cache, places), op.Gather(sin_cache, places), interleaved)
    return merge_heads(made) if flat else made


@composite("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    query: Value,
    key: Value | None,
    value: Value | None,
    past_key: Value | None,
    past_value: Value | None,
    seqlens_k: Value,
    total_sequence_length: Value,
    cos_cache: Value | None,
    sin_cache: Value | None,
    position_ids: Value | None,
    attention_bias: Value | None,
    head_sink: Value | None,
    k_scale: Value | None,
    v_scale: Value | None,
    q_norm_weight: Value | None,
    k_norm_weight: Value | None,
    query_seqlens: Value | None,
    *,
    causal: int = 1,
    do_rotary: int = 0,
    k_norm_epsilon: float | None = None,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    q_norm_epsilon: float | None = None,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[Value, Value, Value]:
    """y = softmax(a q k^T + mask) v, in which several heads of q share one of k and v"""
    _refuse(
        "com.microsoft::GroupQueryAttention",
        k_scale=k_scale,
        v_scale=v_scale,
        query_seqlens=query_seqlens,
        k_quant_type=k_quant_type,
        v_quant_type=v_quant_type,
        kv_cache_bit_width=kv_cache_bit_width,
        qk_output=qk_output,
        sliding_window_cache=sliding_window_cache,
    )
    if key is None or value is None:
        split = split_heads(query, num_heads + 2 * kv_num_heads)
        ends = num_heads, num_heads + kv_num_heads
        q, k, v = split[:, : ends[0]], split[:, ends[0] : ends[1]], split[:, ends[1] :]
    else:
        q, k, v = (
            split_heads(query, num_heads),
            split_heads(key, kv_num_heads),
            split_heads(value, kv_num_heads),
        )
    if q_norm_weight is not None and k_norm_weight is not None:
        q = _rms_normalised(q, q_norm_weight, q_norm_epsilon or qk_norm_epsilon)
        k = _rms_normalised(k, k_norm_weight, k_norm_epsilon or qk_norm_epsilon)
    steps = positions(dims_of(q, [2]))
    places, seen = steps, None
    if past_key is not None:
        # How many of the cached keys each sequence has: none in its first step.
        count = seqlens_k.cast(TensorProto.INT64).unsqueeze(1) + 1
        seen = op.Max(count - length_of(q, 2), 0)
        places = seen + steps
    if do_rotary and cos_cache is not None and sin_cache is not None:
        turned_by = places if position_ids is None else position_ids
        cos, sin = op.Gather(cos_cache, turned_by), op.Gather(sin_cache, turned_by)
        q, k = (rotated(x, cos, sin, rotary_interleaved) for x in (q, k))
    key_places = places
    if past_key is not None and past_value is not None:
        cached = positions(dims_of(past_key, [2]))
        cached = op.Where(cached < seen, cached, _NOWHERE)
        key_places = op.Concat(cached, places, axis=1)
        k, v = op.Concat(past_key, k, axis=2), op.Concat(past_value, v, axis=2)
    rows, columns = places.unsqueeze(-1), key_places.unsqueeze(-2)
    hidden = columns > (rows if causal else seqlens_k.cast(TensorProto.INT64).reshape(-1, 1, 1))
    if local_window_size > 0:
        hidden = hidden | ~(rows - columns < local_window_size)
    scores = Scores(
        num_heads,
        kv_num_heads,
        scale=scale,
        softcap=softcap,
        bias=attention_bias,
        hidden=hidden if hidden.rank == 2 else hidden.unsqueeze(1),
        sink=0.0 if head_sink is None and smooth_softmax == 1 else head_sink,
    )
    return scores.attend(q, k, v), k, v


_NOWHERE = int(np.iinfo(np.int64).max)
"""The place of a cached key that a sequence does not have: after all others."""


def _rms_normalised(x: Value, weight: Value, epsilon: float) -> Value:
    return x / (x.square().mean(-1, keepdims=True) + epsilon).sqrt() * weight
