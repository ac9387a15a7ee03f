"""Pooling over the axes after the first two (batch and channels), of any number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from blockdsl.blocks.block import Block
from blockdsl.blocks.operator import Unary, value_of
from blockdsl.blocks.windows import Padding, Window, padding, per_axis
from blockdsl.graph.op import op
from blockdsl.graph.value import Value


@dataclass(eq=False)
class MaxPool(Block):
    """The maximum of each window.

    Args:
        kernel_size: The size of the window, one for all axes or one each; so are the next ones.
        stride: The step, the size of the window by default.
        padding: As for `Conv`; what is padded is never the maximum.
        dilation: The spacing of the window's elements; needs opset 10.
        ceil_mode: Whether a last window may reach past the end; needs opset 10.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(MaxPool(2)(blockdsl.input("x", shape=("batch", 8, 28, 28))).type)
        float32[batch, 8, 14, 14]
    """

    kernel_size: Window
    stride: Window | None = None
    padding: Padding = 0
    dilation: Window = 1
    ceil_mode: bool = False

    def build(self, x: str) -> Value:
        """Pool a tensor."""
        x = value_of(x)
        axes = x.rank - 2
        dilation = None if self.dilation == 1 else per_axis(self.dilation, axes, "dilation")
        settings = _settings(self, axes)
        y: Value = op.MaxPool(x, dilations=dilation, **settings)
        return y


@dataclass(eq=False)
class AveragePool(Block):
    """The mean of each window.

    Args:
        kernel_size: The size of the window, one for all axes or one each; so are the next ones.
        stride: The step, the size of the window by default.
        padding: As for `Conv`.
        ceil_mode: Whether a last window may reach past the end; needs opset 10.
        count_include_pad: Whether zeros that are padded count (they do in PyTorch's default).

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(AveragePool(2)(blockdsl.input("x", shape=("batch", 8, 28, 28))).type)
        float32[batch, 8, 14, 14]
    """

    kernel_size: Window
    stride: Window | None = None
    padding: Padding = 0
    ceil_mode: bool = False
    count_include_pad: bool = False

    def build(self, x: str) -> Value:
        """Pool a tensor."""
        x = value_of(x)
        settings = _settings(self, x.rank - 2)
        y: Value = op.AveragePool(x, count_include_pad=self.count_include_pad, **settings)
        return y


class GlobalAveragePool(Unary):
    """The mean over all axes after batch and channels, which stay with length one.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(GlobalAveragePool()(blockdsl.input("x", shape=("batch", 8, 7, 7))).type)
        float32[batch, 8, 1, 1]
    """

    operator = op.GlobalAveragePool


def _settings(pool: MaxPool | AveragePool, axes: int) -> dict[str, Any]:
    """The attributes that both kinds share; what an old opset lacks only where it is asked for."""
    kernel = per_axis(pool.kernel_size, axes, "kernel_size")
    return {
        "kernel_shape": kernel,
        "strides": kernel if pool.stride is None else per_axis(pool.stride, axes, "stride"),
        "ceil_mode": True if pool.ceil_mode else None,
        **padding(pool.padding, axes),
    }
