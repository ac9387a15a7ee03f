"""The loss of many terms, written for onnxblock: blockdsl runs it as it stands."""

from __future__ import annotations

from typing import Any


def weighted_sum(onnxblock: Any, terms: int) -> Any:
    """The block `sum of w_i MSE(output, target)`, with as many terms.

    Args:
        onnxblock: The module, blockdsl or onnxruntime.training.onnxblock.
        terms: How many terms.
    """

    class WeightedSum(onnxblock.Block):
        def __init__(self):
            super().__init__()
            self.losses = [onnxblock.loss.MSELoss() for _ in range(terms)]
            self.weights = [onnxblock.blocks.Constant(1.0 / (i + 1)) for i in range(terms)]
            self.products = [onnxblock.blocks.Mul() for _ in range(terms)]
            self.sums = [onnxblock.blocks.Add() for _ in range(terms - 1)]

        def build(self, output):
            parts = [
                product(weight(), loss(output))
                for product, weight, loss in zip(
                    self.products, self.weights, self.losses, strict=True
                )
            ]
            total = parts[0]
            for add, part in zip(self.sums, parts[1:], strict=True):
                total = add(total, part)
            return total

    return WeightedSum()
