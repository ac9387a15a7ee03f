"""Losses.

A loss is a block that takes a prediction and the name of its target. A target that the model does
not have becomes an input of it.
"""

from blockdsl.loss.base import Loss
from blockdsl.loss.classification import CrossEntropyLoss, NLLLoss
from blockdsl.loss.probability import BCEWithLogitsLoss, KLDivLoss
from blockdsl.loss.regression import HuberLoss, L1Loss, MSELoss, SmoothL1Loss

__all__ = [
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "Loss",
    "MSELoss",
    "NLLLoss",
    "SmoothL1Loss",
]
