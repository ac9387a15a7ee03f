"""The files that training needs, and how they are made."""

from blockdsl.artifacts.checkpoints import load_checkpoint_to_model, save_checkpoint
from blockdsl.artifacts.generate import generate_artifacts
from blockdsl.artifacts.inspection import Finding, Report, inspect
from blockdsl.artifacts.kinds import LossType, OptimType

__all__ = [
    "Finding",
    "LossType",
    "OptimType",
    "Report",
    "generate_artifacts",
    "inspect",
    "load_checkpoint_to_model",
    "save_checkpoint",
]
