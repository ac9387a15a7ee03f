"""The `session` engine: training in plain inference sessions, on any ONNX Runtime."""

from __future__ import annotations

from blockdsl.backend import checkpoint
from blockdsl.backend.files import StrPath
from blockdsl.backend.session.module import SessionModule
from blockdsl.backend.session.optimizer import PlainOptimizer, open_stepper
from blockdsl.backend.session.state import SessionState

__all__ = ["PlainOptimizer", "SessionModule", "SessionState", "load_state", "open_stepper"]

open_module = SessionModule


def load_state(path: StrPath) -> SessionState:
    """Read a checkpoint."""
    return SessionState(checkpoint.load(path))
