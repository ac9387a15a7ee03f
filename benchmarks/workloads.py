"""What is measured: the rows of the tables."""

from __future__ import annotations

from dataclasses import dataclass

CLASSES = 10
NODES = (100, 1000, 5000, 20_000)
"""The sizes of the graphs that are built."""

TERMS = (1, 10)
"""The terms of the loss of the 449 MB model."""


@dataclass(frozen=True)
class Workload:
    """A model that is trained, and the batch that it is fed."""

    name: str
    title: str
    batch: tuple[int, ...]


STEPS = {
    workload.name: workload
    for workload in (
        Workload("mlp", "MLP 784-512-512-10", (64, 784)),
        Workload("cnn", "CNN: 2 x (convolution, batch norm, pooling), 28x28", (32, 1, 28, 28)),
        Workload("resnet", "2 residual blocks, 64 channels of 16x16, batch norm", (16, 64, 16, 16)),
        Workload("transformer", "encoder layer, 64 tokens, width 128, 4 heads", (8, 64, 128)),
        Workload("lstm", "LSTM, 32 steps, 64 features, 128 hidden", (16, 32, 64)),
    )
}
