"""Operators of sequence models that `onnx.reference` computes in float32, whatever their type."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun

Array = npt.NDArray[Any]


class CausalConvWithState(OpRun):
    """A convolution of every channel by itself that sees the last steps only."""

    op_domain = ""

    def _run(
        self,
        x: Array,
        weight: Array,
        bias: Array | None = None,
        past_state: Array | None = None,
        activation: str = "none",
    ) -> tuple[Array, ...]:
        before = weight.shape[2] - 1
        past = np.zeros((*x.shape[:2], before), x.dtype) if past_state is None else past_state
        padded = np.concatenate([past, x], axis=2)
        windows = np.lib.stride_tricks.sliding_window_view(padded, before + 1, axis=2)
        y = np.einsum("bclk,ck->bcl", windows, weight[:, 0])
        y = y if bias is None else y + bias[:, None]
        y = y if activation == "none" else y / (1 + np.exp(-y))
        return y, padded[:, :, padded.shape[2] - before :]


class LinearAttention(OpRun):
    """A recurrence over a matrix: S = e^decay S + k (v - S^T k)^T, y = q S."""

    op_domain = ""

    def _run(
        self,
        query: Array,
        key: Array,
        value: Array,
        past_state: Array | None = None,
        decay: Array | None = None,
        beta: Array | None = None,
        kv_num_heads: int = 1,
        q_num_heads: int = 1,
        scale: float = 0.0,
        update_rule: str = "gated_delta",
        **_: Any,
    ) -> tuple[Array, ...]:
        batch, steps, _ = query.shape
        q, k, v = (
            x.reshape(batch, steps, heads, -1)
            for x, heads in ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads))
        )
        shape = (batch, kv_num_heads, k.shape[-1], v.shape[-1])
        state = np.zeros(shape, query.dtype) if past_state is None else past_state
        outputs = []
        for t in range(steps):
            if decay is not None:
                state = state * np.exp(decay[:, t].reshape(batch, kv_num_heads, -1, 1))
            written = v[:, t]
            if beta is not None:
                seen = np.einsum("bhdm,bhd->bhm", state, k[:, t])
                written = beta[:, t, :, None] * (written - seen)
            state = state + k[:, t, :, :, None] * written[:, :, None]
            read = np.repeat(state, q_num_heads // kv_num_heads, axis=1)
            outputs.append(np.einsum("bhd,bhdm->bhm", q[:, t], read))
        y = np.stack(outputs, axis=1) * (scale or q.shape[-1] ** -0.5)
        return y.reshape(batch, steps, -1), state


OPERATORS: list[Any] = [CausalConvWithState, LinearAttention]
