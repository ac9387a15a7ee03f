"""Normalisation to mean zero and variance one, with a learned scale and shift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from blockdsl.blocks.block import Block
from blockdsl.blocks.operator import value_of
from blockdsl.blocks.parameters import buffer, check_size, float_type, parameter
from blockdsl.graph.context import current
from blockdsl.graph.op import op
from blockdsl.graph.value import Value


@dataclass(eq=False)
class BatchNorm(Block):
    """`(x - mean) / sqrt(variance + epsilon) * weight + bias` for each channel (axis 1).

    In the training model mean and variance are the batch's, and `running_mean` and `running_var`
    follow them: `running = momentum running + (1 - momentum) batch`. In the evaluation model they
    are the running ones. `weight` and `bias` are parameters, of the type of the input.

    Args:
        num_features: The number of channels.
        epsilon: What keeps the root from zero.
        momentum: How much of the running statistics stays at each step (PyTorch's momentum is
            one minus this).

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base() as handle:
        ...     y = BatchNorm(8)(blockdsl.input("x", shape=("batch", 8, 4, 4)))
        >>> print(y.type)
        float32[batch, 8, 4, 4]
        >>> [t.name.removeprefix("BatchNorm.") for t in handle.model.graph.initializer]
        ['weight', 'bias', 'running_mean', 'running_var']
    """

    num_features: int
    epsilon: float = 1e-5
    momentum: float = 0.9

    def build(self, x: str) -> Value:
        """Normalise a tensor."""
        x = value_of(x)
        check_size(x, 1, self.num_features, self)
        ones = np.ones(self.num_features, float_type(x, self))
        # Before opset 14 it is the number of outputs that tells the operator to train.
        told = current().opset() >= 14
        y, *_ = op.BatchNormalization(
            x,
            parameter("weight", ones),
            parameter("bias", 0 * ones),
            buffer("running_mean", 0 * ones),
            buffer("running_var", ones),
            epsilon=self.epsilon,
            momentum=self.momentum,
            training_mode=1 if told else None,
            outputs=3 if told else 5,
        )
        return y


@dataclass(eq=False)
class LayerNorm(Block):
    """`(x - mean) / sqrt(variance + epsilon) * weight + bias` over the last axes.

    `weight` and `bias` are parameters, of the type of the input. Before opset 17, which has the
    operator, it is written out.

    Args:
        normalized_shape: The sizes of the last axes, which are normalised together; or of the
            last one.
        epsilon: What keeps the root from zero.
        bias: Whether to add a bias.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base() as handle:
        ...     y = LayerNorm(8)(blockdsl.input("x", shape=("batch", 5, 8)))
        >>> print(y.type, [t.name for t in handle.model.graph.initializer])
        float32[batch, 5, 8] ['LayerNorm.weight', 'LayerNorm.bias']
    """

    normalized_shape: int | Sequence[int]
    epsilon: float = 1e-5
    bias: bool = True

    def build(self, x: str) -> Value:
        """Normalise a tensor."""
        x = value_of(x)
        given = self.normalized_shape
        shape = (given,) if isinstance(given, int) else tuple(given)
        ones = np.ones(shape, float_type(x, self))
        weight = parameter("weight", ones)
        bias = parameter("bias", 0 * ones) if self.bias else None
        first = x.rank - len(shape)
        for axis, size in enumerate(shape, start=first):
            check_size(x, axis, size, self)
        if current().opset() >= 17:
            y: Value = op.LayerNormalization(x, weight, bias, axis=first, epsilon=self.epsilon)
            return y
        axes = list(range(first, x.rank))
        centred = x - x.mean(axes, keepdims=True)
        spread = (centred.square().mean(axes, keepdims=True) + self.epsilon).sqrt()
        y = centred / spread * weight
        return y if bias is None else y + bias
