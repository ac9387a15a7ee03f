"""The forward models that are measured, as blocks."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
import onnx

import blockdsl
from blockdsl import blocks, op
from blockdsl.artifacts.roles import roles
from blockdsl.graph import Value


class Mlp(blockdsl.ForwardBlock):
    def build(self, x):
        return blocks.Sequential(
            blocks.Linear(784, 512),
            blocks.Relu(),
            blocks.Linear(512, 512),
            blocks.Relu(),
            blocks.Linear(512, 10),
        )(x)


class Cnn(blockdsl.ForwardBlock):
    def build(self, x):
        return blocks.Sequential(
            blocks.Conv(1, 32, 3, padding=1),
            blocks.BatchNorm(32),
            blocks.Relu(),
            blocks.MaxPool(2),
            blocks.Conv(32, 64, 3, padding=1),
            blocks.BatchNorm(64),
            blocks.Relu(),
            blocks.MaxPool(2),
            blocks.Flatten(),
            blocks.Linear(64 * 7 * 7, 10),
        )(x)


class ResNet(blockdsl.ForwardBlock):
    def build(self, x):
        for _ in range(2):
            x = self.residual(x)
        return blocks.Linear(64, 10)(x.mean([2, 3]))

    def residual(self, x):
        inner = blocks.Sequential(
            blocks.Conv(64, 64, 3, padding=1, bias=False),
            blocks.BatchNorm(64),
            blocks.Relu(),
            blocks.Conv(64, 64, 3, padding=1, bias=False),
            blocks.BatchNorm(64),
        )
        return (x + inner(x)).relu()


class Transformer(blockdsl.ForwardBlock):
    """One encoder layer, the norms first."""

    width, heads, tokens = 128, 4, 64

    def build(self, x):
        x = x + self.attention(blocks.LayerNorm(self.width)(x))
        feed_forward = blocks.Sequential(
            blocks.LayerNorm(self.width),
            blocks.Linear(self.width, 4 * self.width),
            blocks.Gelu(),
            blocks.Linear(4 * self.width, self.width),
        )
        x = x + feed_forward(x)
        return blocks.Linear(self.width, 10)(x.mean(1))

    def attention(self, x):
        query, key, value = (self.split(blocks.Linear(self.width, self.width)(x)) for _ in "qkv")
        scores = query @ key.transpose(0, 1, 3, 2) / sqrt(self.width / self.heads)
        mixed = (scores.softmax() @ value).transpose(0, 2, 1, 3)
        return blocks.Linear(self.width, self.width)(mixed.reshape(0, self.tokens, self.width))

    def split(self, x):
        parts = x.reshape(0, self.tokens, self.heads, self.width // self.heads)
        return parts.transpose(0, 2, 1, 3)


class Lstm(blockdsl.ForwardBlock):
    """The last state of an LSTM, written as PyTorch exports it."""

    features, hidden = 64, 128

    def build(self, x):
        weights = [self.weight("W", self.features), self.weight("R", self.hidden)]
        bias = self.parameter("B", (1, 8 * self.hidden))
        batch = op.Gather(op.Shape(x), np.array([0]), axis=0)
        shape = op.Concat(np.array([1]), batch, np.array([self.hidden]), axis=0)
        zeros = op.Expand(np.zeros(1, np.float32), shape)
        steps = x.transpose(1, 0, 2)
        _, last, _ = op.LSTM(
            steps, *weights, bias, None, zeros, zeros, hidden_size=self.hidden, outputs=3
        )
        return blocks.Linear(self.hidden, 10)(last.squeeze(0))

    def weight(self, name: str, size: int) -> Value:
        return self.parameter(name, (1, 4 * self.hidden, size))

    def parameter(self, name: str, shape: tuple[int, ...]) -> Value:
        limit = 1 / sqrt(self.hidden)
        drawn = np.random.default_rng(len(shape) + shape[-1]).uniform(-limit, limit, shape)
        return blockdsl.graph.current().add_initializer(drawn.astype(np.float32), name)


class Wide(blockdsl.ForwardBlock):
    """An MLP of 117 million parameters: 449 MB."""

    sizes = (1024, *[4096] * 7, 3114)

    def build(self, x):
        graph = blockdsl.graph.current()
        for i, (inputs, outputs) in enumerate(zip(self.sizes[:-1], self.sizes[1:], strict=True)):
            # Not drawn at random: that would take longer than all that is measured.
            constant = np.full((inputs, outputs), 0.01, np.float32)
            weight = graph.add_initializer(constant, f"{i}.weight")
            bias = graph.add_initializer(constant[0], f"{i}.bias")
            x = op.Gemm(x.relu() if i else x, weight, bias)
        return x


class Chain(blockdsl.ForwardBlock):
    """A chain of residual layers of four nodes each."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes

    def build(self, x):
        for _ in range(self.nodes // 4):
            x = x + 0.5 * blocks.Linear(8, 8)(x).relu()
        return x


STEPS = {"mlp": Mlp, "cnn": Cnn, "resnet": ResNet, "transformer": Transformer, "lstm": Lstm}


def write(block: blockdsl.ForwardBlock, row: Sequence[int], path: str) -> list[str]:
    """Write a forward model whose input `x` is a batch of any size, of rows of this shape.

    Returns:
        The names of its parameters.
    """
    with blockdsl.empty_base():
        block(blockdsl.input("x", shape=("batch", *row)))
        model = block.to_model_proto()
    onnx.save(model, path)
    return [name for name, role in roles(model).items() if role.trained]
