"""Checkpoints in the format of ONNX Runtime's on-device training, without its training build."""

from blockdsl.backend.checkpoint.format import GROUP, Checkpoint, OptimizerGroup
from blockdsl.backend.checkpoint.storage import (
    EXTERNAL_DATA_THRESHOLD,
    dumps,
    load,
    loads,
    save,
)

__all__ = [
    "EXTERNAL_DATA_THRESHOLD",
    "GROUP",
    "Checkpoint",
    "OptimizerGroup",
    "dumps",
    "load",
    "loads",
    "save",
]
