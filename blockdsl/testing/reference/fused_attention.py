"""Attention of ONNX Runtime's optimisers, which `onnx.reference` does not know."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun

Array = npt.NDArray[Any]

MICROSOFT = "com.microsoft"


def _softmax(x: Array) -> Array:
    powers: Array = np.exp(x - x.max(axis=-1, keepdims=True))
    shares: Array = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def _heads(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _joined(x: Array) -> Array:
    return x.transpose(0, 2, 1, 3).reshape(len(x), x.shape[2], -1)


def _scores(
    q: Array, k: Array, scale: float | None, mask: Array | None, value: float, bias: Array | None
) -> Array:
    """Scaled products, less something where a mask of keys says so."""
    scores = q @ k.swapaxes(2, 3) * (scale or q.shape[-1] ** -0.5)
    if mask is not None:
        scores = scores + np.where(_seen(mask, len(q), k.shape[2]), 0, value)
    return scores if bias is None else scores + bias


def _seen(mask: Array, batch: int, keys: int) -> Array:
    if mask.ndim == 3:
        return mask[:, None] > 0
    if mask.ndim == 2:
        return mask[:, None, None] > 0
    places = np.arange(keys)
    starts = mask[batch:, None] if len(mask) > batch else 0
    return ((places >= starts) & (places < mask[:batch, None]))[:, None, None]


def _causal(scores: Array) -> Array:
    steps, keys = scores.shape[2:]
    return np.where(np.tri(steps, keys, keys - steps, dtype=bool), scores, -np.inf)


class Attention(OpRun):
    """Self-attention, its projections included."""

    op_domain = MICROSOFT

    def _run(
        self,
        x: Array,
        weights: Array,
        bias: Array | None = None,
        mask: Array | None = None,
        past: Array | None = None,
        attention_bias: Array | None = None,
        mask_filter_value: float = -10000.0,
        num_heads: int = 1,
        qkv_hidden_sizes: Any = None,
        scale: float | None = None,
        unidirectional: int = 0,
        **_: Any,
    ) -> tuple[Array, ...]:
        projected = x @ weights if bias is None else x @ weights + bias
        ends = np.cumsum(qkv_hidden_sizes or [weights.shape[1] // 3] * 3)[:2]
        q, k, v = (_heads(part, num_heads) for part in np.split(projected, ends, axis=-1))
        if past is not None:
            k, v = (np.concatenate(pair, axis=2) for pair in zip(past, (k, v), strict=True))
        scores = _scores(q, k, scale, mask, mask_filter_value, attention_bias)
        scores = _causal(scores) if unidirectional else scores
        y = _joined(_softmax(scores) @ v)
        return (y,) if len(self.onnx_node.output) == 1 else (y, np.stack([k, v]))


class MultiHeadAttention(OpRun):
    """Attention of projected queries, keys and values."""

    op_domain = MICROSOFT

    def _run(
        self,
        query: Array,
        key: Array | None = None,
        value: Array | None = None,
        bias: Array | None = None,
        mask: Array | None = None,
        attention_bias: Array | None = None,
        past_key: Array | None = None,
        past_value: Array | None = None,
        mask_filter_value: float = -10000.0,
        num_heads: int = 1,
        scale: float | None = None,
        unidirectional: int = 0,
        **_: Any,
    ) -> tuple[Array, ...]:
        if key is None:
            q, k, v = query.transpose(3, 0, 2, 1, 4)
        else:
            q = _heads(query, num_heads)
            if value is None:
                k, v = key.transpose(3, 0, 2, 1, 4)
            elif key.ndim == 4:
                k, v = key, value
            else:
                k, v = _heads(key, num_heads), _heads(value, num_heads)
        if bias is not None:
            ends = np.cumsum([num_heads * x.shape[-1] for x in (q, k)])
            rows = [part.reshape(num_heads, 1, -1) for part in np.split(bias, ends)]
            q = q + rows[0]
            if key is None or key.ndim != 4:
                k, v = k + rows[1], v + rows[2]
        if past_key is not None and past_value is not None:
            k, v = np.concatenate([past_key, k], axis=2), np.concatenate([past_value, v], axis=2)
        scores = _scores(q, k, scale, mask, mask_filter_value, attention_bias)
        scores = _causal(scores) if unidirectional else scores
        return (_joined(_softmax(scores) @ v), k, v)[: len(self.onnx_node.output)]


def _turned(x: Array, cos: Array, sin: Array, interleaved: int) -> Array:
    half = cos.shape[-1]
    if cos.ndim == 3:
        cos, sin = cos[:, None], sin[:, None]
    out = x.copy()
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        if interleaved
        else (slice(0, half), slice(half, 2 * half))
    )
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


class RotaryEmbedding(OpRun):
    """Heads turned by their positions."""

    op_domain = MICROSOFT

    def _run(
        self,
        x: Array,
        positions: Array,
        cos: Array,
        sin: Array,
        interleaved: int = 0,
        num_heads: int = 0,
        **_: Any,
    ) -> tuple[Array]:
        size = 2 * cos.shape[1]
        heads = _heads(x, num_heads or x.shape[2] // size) if x.ndim == 3 else x
        places = positions + np.arange(heads.shape[2]) if positions.ndim == 1 else positions
        turned = _turned(heads, cos[places], sin[places], interleaved)
        return (_joined(turned) if x.ndim == 3 else turned,)


class GroupQueryAttention(OpRun):
    """Causal attention in which heads share keys, with a cache: one sequence after the other."""

    op_domain = MICROSOFT

    def _run(
        self,
        query: Array,
        key: Array | None,
        value: Array | None,
        past_key: Array | None,
        past_value: Array | None,
        lengths: Array,
        total: Array,
        cos: Array | None = None,
        sin: Array | None = None,
        positions: Array | None = None,
        attention_bias: Array | None = None,
        head_sink: Array | None = None,
        k_scale: Array | None = None,
        v_scale: Array | None = None,
        q_norm: Array | None = None,
        k_norm: Array | None = None,
        num_heads: int = 1,
        kv_num_heads: int = 1,
        **settings: Any,
    ) -> tuple[Array, ...]:
        if key is None or value is None:
            ends = [num_heads, num_heads + kv_num_heads]
            q, k, v = np.split(_heads(query, num_heads + 2 * kv_num_heads), ends, axis=1)
        else:
            q, k, v = _heads(query, num_heads), *(_heads(x, kv_num_heads) for x in (key, value))
        if q_norm is not None and k_norm is not None:
            q, k = _rms_normalised(q) * q_norm, _rms_normalised(k) * k_norm
        sink = head_sink
        if sink is None and settings.get("smooth_softmax") == 1:
            sink = np.zeros(num_heads)
        outputs, presents = [], []
        for b, (one_q, one_k, one_v) in enumerate(zip(q, k, v, strict=True)):
            before = 0 if past_key is None else max(int(lengths[b]) + 1 - q.shape[2], 0)
            places = before + np.arange(q.shape[2])
            if settings.get("do_rotary") and cos is not None and sin is not None:
                at = places if positions is None else positions[b]
                flip = int(settings.get("rotary_interleaved") or 0)
                one_q, one_k = (_turned(x, cos[at], sin[at], flip) for x in (one_q, one_k))
            if past_key is not None and past_value is not None:
                one_k = np.concatenate([past_key[b][:, :before], one_k], axis=1)
                one_v = np.concatenate([past_value[b][:, :before], one_v], axis=1)
            presents.append([_lengthened(x, total) for x in (one_k, one_v)])
            one_k, one_v = (np.repeat(x, num_heads // kv_num_heads, axis=0) for x in (one_k, one_v))
            scores = one_q @ one_k.swapaxes(1, 2) * (settings.get("scale") or q.shape[-1] ** -0.5)
            if cap := settings.get("softcap"):
                scores = cap * np.tanh(scores / cap)
            if attention_bias is not None:
                scores = scores + attention_bias[b % len(attention_bias)]
            distance = places[:, None] - np.arange(scores.shape[-1])
            window = settings.get("local_window_size") or -1
            seen = (distance >= 0) & ((window < 0) | (distance < window))
            if not settings.get("causal", 1):
                seen = np.arange(scores.shape[-1]) <= lengths[b]
            outputs.append(_shares(np.where(seen, scores, -np.inf), sink) @ one_v)
        made = _joined(np.stack(outputs)).astype(query.dtype)
        if len(self.onnx_node.output) == 1:
            return (made,)
        return made, *(np.stack(parts) for parts in zip(*presents, strict=True))


def _rms_normalised(x: Array) -> Array:
    normal: Array = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)
    return normal


def _shares(scores: Array, sink: Array | None) -> Array:
    """The softmax over keys and, of each head, a sink."""
    if sink is None:
        return _softmax(scores)
    column = np.broadcast_to(sink[:, None, None], (*scores.shape[:2], 1))
    return _softmax(np.concatenate([scores, column], axis=-1))[..., :-1]


def _lengthened(x: Array, total: Array) -> Array:
    """A cache as long as the longest, zeros behind its end."""
    return np.pad(x, [(0, 0), (0, int(total.max()) - x.shape[1]), (0, 0)])


OPERATORS: list[Any] = [Attention, GroupQueryAttention, MultiHeadAttention, RotaryEmbedding]
