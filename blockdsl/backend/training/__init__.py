"""The `training` engine: onnxruntime-training's own C classes under the API of blockdsl."""

from blockdsl.backend.training.module import TrainingModule
from blockdsl.backend.training.optimizer import open_stepper
from blockdsl.backend.training.state import TrainingState

__all__ = [
    "TrainingModule",
    "TrainingState",
    "load_state",
    "open_module",
    "open_stepper",
]

load_state = TrainingState
open_module = TrainingModule
