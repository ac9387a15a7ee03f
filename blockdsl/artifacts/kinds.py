"""The losses and optimizers that are asked for by name."""

from enum import Enum


class LossType(Enum):
    """A loss of `blockdsl.loss`."""

    MSELoss = 1
    CrossEntropyLoss = 2
    BCEWithLogitsLoss = 3
    L1Loss = 4


class OptimType(Enum):
    """An optimizer of `blockdsl.optim`."""

    AdamW = 1
    SGD = 2
