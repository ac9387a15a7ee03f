"""The files that training needs, and how they are made."""

from blockdsl.artifacts.checkpoints import load_checkpoint_to_model, save_checkpoint
from blockdsl.artifacts.generate import generate_artifacts
from blockdsl.artifacts.kinds import LossType, OptimType

__all__ = [
    "LossType",
    "OptimType",
    "generate_artifacts",
    "load_checkpoint_to_model",
    "save_checkpoint",
]
