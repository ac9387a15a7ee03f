"""Normalizations."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import helper
from onnx.reference.op_run import OpRun

Array = npt.NDArray[Any]


class BatchNormalization(OpRun):
    """`onnx.reference` normalises by batch statistics before opset 14, in inference form too."""

    op_domain = ""

    def _run(
        self,
        x: Array,
        scale: Array,
        bias: Array,
        mean: Array,
        var: Array,
        epsilon: float = 1e-5,
        momentum: float = 0.9,
        training_mode: int = 0,
        spatial: int | None = None,
        **_: Any,
    ) -> tuple[Array, ...]:
        count = len(self.onnx_node.output)
        axes = (0,) if spatial == 0 else tuple(a for a in range(x.ndim) if a != 1)
        used_mean, used_var = mean, var
        running: tuple[Array, ...] = ()
        if training_mode or count > 1:
            used_mean, used_var = x.mean(axis=axes), x.var(axis=axes)
            running = (
                mean * momentum + used_mean * (1 - momentum),
                var * momentum + used_var * (1 - momentum),
            )
        column = x.shape[1:] if spatial == 0 else (-1, *[1] * (x.ndim - 2))
        y = (x - used_mean.reshape(column)) / np.sqrt(used_var.reshape(column) + epsilon)
        y = y * scale.reshape(column) + bias.reshape(column)
        return tuple(o.astype(x.dtype) for o in (y, *running, used_mean, used_var)[:count])


class LayerNormalization(OpRun):
    """`onnx.reference` computes statistics in float32 where all else is float64."""

    op_domain = ""

    def _run(
        self,
        x: Array,
        scale: Array,
        bias: Array | None = None,
        axis: int = -1,
        epsilon: float = 1e-5,
        stash_type: int = 1,
        **_: Any,
    ) -> tuple[Array, ...]:
        axes = tuple(range(axis % x.ndim, x.ndim))
        wide = _widened(x, stash_type)
        mean = wide.mean(axis=axes, keepdims=True)
        inverse = 1 / np.sqrt(((wide - mean) ** 2).mean(axis=axes, keepdims=True) + epsilon)
        y = ((wide - mean) * inverse).astype(x.dtype) * scale
        y = y if bias is None else y + bias
        stash = helper.tensor_dtype_to_np_dtype(stash_type)
        outputs = (y.astype(x.dtype), mean.astype(stash), inverse.astype(stash))
        return outputs[: len(self.onnx_node.output)]


class MeanVarianceNormalization(OpRun):
    """`onnx.reference` runs its function body, which has float32 constants."""

    op_domain = ""

    def _run(self, x: Array, axes: list[int] | None = None) -> tuple[Array]:
        over = tuple(axes or (0, 2, 3))
        mean = x.mean(axis=over, keepdims=True)
        deviation = np.sqrt((x * x).mean(axis=over, keepdims=True) - mean * mean)
        return ((x - mean) / (deviation + x.dtype.type(1e-9)),)


class RMSNormalization(OpRun):
    """`onnx.reference` computes in float32 where all else is float64."""

    op_domain = ""

    def _run(
        self,
        x: Array,
        scale: Array,
        axis: int = -1,
        epsilon: float = 1e-5,
        stash_type: int = 1,
        **_: Any,
    ) -> tuple[Array]:
        axes = tuple(range(axis % x.ndim, x.ndim))
        wide = _widened(x, stash_type)
        y = wide / np.sqrt((wide * wide).mean(axis=axes, keepdims=True) + epsilon)
        return ((y.astype(x.dtype) * scale).astype(x.dtype),)


def _widened(x: Array, stash_type: int) -> Array:
    """A tensor in the type that statistics are computed in."""
    stash = helper.tensor_dtype_to_np_dtype(stash_type)
    return x.astype(np.result_type(x.dtype, stash))


OPERATORS: list[Any] = [
    BatchNormalization,
    LayerNormalization,
    MeanVarianceNormalization,
    RMSNormalization,
]
