"""Convolution, dropout, embedding and the softmax; `Linear` is in `linalg`."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from blockdsl.blocks.block import Block
from blockdsl.blocks.operator import value_of
from blockdsl.blocks.parameters import (
    Init,
    Seed,
    bound,
    check_size,
    dtype_of,
    float_type,
    parameter,
    uniform,
)
from blockdsl.blocks.windows import Padding, Window, padding, per_axis
from blockdsl.errors import OpError
from blockdsl.graph.context import current
from blockdsl.graph.op import op
from blockdsl.graph.value import Value


@dataclass(eq=False)
class Softmax(Block):
    """`e^x / sum(e^x)` along an axis, the same at every opset.

    Args:
        axis: The axis.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(Softmax()(blockdsl.input("x", shape=("batch", 3))).type)
        float32[batch, 3]
    """

    axis: int = -1

    def build(self, input_name: str) -> Value:
        """Apply the function."""
        return value_of(input_name).softmax(self.axis)


@dataclass(eq=False)
class LogSoftmax(Block):
    """`x - log(sum(e^x))` along an axis, without overflow, the same at every opset.

    Args:
        axis: The axis.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(LogSoftmax(axis=1)(blockdsl.input("x", shape=("batch", 3, 5))).type)
        float32[batch, 3, 5]
    """

    axis: int = -1

    def build(self, input_name: str) -> Value:
        """Apply the function."""
        return value_of(input_name).log_softmax(self.axis)


@dataclass(eq=False)
class Conv(Block):
    """Convolution over the axes after the first two (batch and channels), of any number.

    It owns the parameters `weight` (out_channels x in_channels / groups x kernel) and `bias`, of
    the type of the input. Both are drawn uniformly: the bias within `1 / sqrt(fan_in)`, the weight
    within the bound that `init` gives. `fan_in` and `fan_out` are the channels of a group, in and
    out, times the elements of the kernel.

    Args:
        in_channels: The channels of the input.
        out_channels: The channels of the result.
        kernel_size: The size of the kernel, one for all axes or one each; so are the next ones.
        stride: The step.
        padding: Zeros on both sides; both sides one by one, in the order of ONNX's `pads`; or
            "same" for as many as make the result ceil(input / stride) long.
        dilation: The spacing of the kernel's elements.
        groups: The number of groups that the channels fall into.
        bias: Whether to add a bias.
        init: "kaiming" for `1 / sqrt(fan_in)`, PyTorch's default; "xavier" for
            `sqrt(6 / (fan_in + fan_out))`.
        seed: As for `Linear`.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base() as handle:
        ...     y = Conv(1, 8, 3, stride=2, padding=1)(blockdsl.input("x", shape=("N", 1, 28, 28)))
        >>> print(y, y.type, [t.name for t in handle.model.graph.initializer])
        Conv/Conv float32[N, 8, 14, 14] ['Conv.weight', 'Conv.bias']
    """

    in_channels: int
    out_channels: int
    kernel_size: Window
    stride: Window = 1
    padding: Padding = 0
    dilation: Window = 1
    groups: int = 1
    bias: bool = True
    _: KW_ONLY
    init: Init = "kaiming"
    seed: Seed = 0

    def build(self, x: str) -> Value:
        """Convolve.

        Args:
            x: A tensor: batch, channels and at least one more axis.

        Returns:
            The result.
        """
        x = value_of(x)
        dtype, axes = float_type(x, self), x.rank - 2
        kernel = per_axis(self.kernel_size, axes, "kernel_size")
        check_size(x, 1, self.in_channels, self)
        if self.groups < 1 or self.in_channels % self.groups or self.out_channels % self.groups:
            raise OpError(f"{self!r}: groups must divide both numbers of channels.")
        shape = (self.out_channels, self.in_channels // self.groups, *kernel)
        fan_in, fan_out = math.prod(shape[1:]), self.out_channels // self.groups * math.prod(kernel)
        spread, limit = bound(self.init, fan_in, fan_out), bound("kaiming", fan_in, fan_out)
        weight = uniform("weight", self.seed, dtype, spread, shape)
        bias = uniform("bias", self.seed, dtype, limit, shape[:1]) if self.bias else None
        y: Value = op.Conv(
            x,
            weight,
            bias,
            kernel_shape=kernel,
            strides=per_axis(self.stride, axes, "stride"),
            dilations=per_axis(self.dilation, axes, "dilation"),
            group=self.groups,
            **padding(self.padding, axes),
        )
        return y


@dataclass(eq=False)
class Dropout(Block):
    """Zero at random: `x / (1 - ratio)` with the probability 1 - ratio, else 0, in training.

    The evaluation model passes `x` through. Before opset 12 the operator cannot be told to train:
    training models have its mathematics in its place, which draw from a generator of their own
    that `blockdsl.api.set_seed` does not set back.

    Args:
        ratio: The probability of zero.
        seed: The operator's attribute. Training artifacts leave it out, where
            `blockdsl.api.set_seed` seeds all dropout.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(Dropout(0.1)(blockdsl.input("x", shape=("batch", 3))).type)
        float32[batch, 3]
    """

    ratio: float = 0.5
    seed: int | None = None

    def build(self, x: str) -> Value:
        """Drop elements of a tensor."""
        if current().opset() < 12:
            y: Value = op.Dropout(x, ratio=self.ratio)
        else:
            # The ratio may not be a bfloat16, and float16 would round it.
            ratio = np.asarray(self.ratio, np.promote_types(value_of(x).dtype, np.float32))
            y = op.Dropout(x, ratio, np.array(True), seed=self.seed)
        return y


@dataclass(eq=False)
class Embedding(Block):
    """Rows of a table, at the indices that the input gives.

    It owns the parameter `weight`, a table (num_embeddings x embedding_dim) drawn from the standard
    normal distribution. Once it has been called, another block can use the table too:
    `hidden @ self.embedding.weight.transpose()`.

    Args:
        num_embeddings: The number of rows.
        embedding_dim: The size of each.
        dtype: The type of the table, by default the model's (see `Constant`).
        seed: As for `Linear`.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base() as handle:
        ...     y = Embedding(100, 8)(blockdsl.input("ids", "int64", ("batch", 5)))
        >>> print(y.type, [t.name for t in handle.model.graph.initializer])
        float32[batch, 5, 8] ['Embedding.weight']
    """

    num_embeddings: int
    embedding_dim: int
    _: KW_ONLY
    dtype: Any = None
    seed: Seed = 0

    def build(self, indices: str) -> Value:
        """Look up rows.

        Args:
            indices: A tensor of integers.

        Returns:
            A row for each.
        """
        shape = (self.num_embeddings, self.embedding_dim)
        dtype = dtype_of(self.dtype)
        table = parameter(
            "weight", lambda rng, shape: rng.standard_normal(shape), shape, dtype, seed=self.seed
        )
        y: Value = op.Gather(table, indices, axis=0)
        return y
