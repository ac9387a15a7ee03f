"""The training state: parameters, gradients, optimizer state and properties."""

from __future__ import annotations

import atexit
import os
from threading import RLock
from typing import Any
from weakref import WeakSet

from blockdsl.api.parameters import Parameters
from blockdsl.api.properties import Properties
from blockdsl.backend.engine import State
from blockdsl.backend.engines import load_state
from blockdsl.backend.files import text_of
from blockdsl.errors import StateError, as_flag

_LOCKS: WeakSet[Any] = WeakSet()
"""The locks of all states."""
_PATIENCE = 60  # seconds


@atexit.register
def _finish_steps() -> None:
    """Wait for the steps of daemon threads and let none begin: the runtime would abort in them."""
    for lock in list(_LOCKS):
        lock.acquire(timeout=_PATIENCE)


class CheckpointState:
    """What training changes, as a checkpoint file holds it.

    Make one with `CheckpointState.load_checkpoint` and hand it to a `Module`.

    Args:
        state: The state of an engine.
    """

    def __init__(self, state: State) -> None:
        if not (hasattr(state, "engine") and hasattr(state, "parameter_names")):
            raise StateError(
                f"Invalid argument for CheckpointState: a {type(state).__name__}. Write "
                "`CheckpointState.load_checkpoint(path)` to read a checkpoint."
            )
        self._state = state
        # Steps, saves and whatever else reads or writes the whole state take turns.
        self._lock = RLock()
        _LOCKS.add(self._lock)
        self._parameters = Parameters(state)
        self._properties = Properties(state)

    @classmethod
    def load_checkpoint(
        cls, checkpoint_uri: str | os.PathLike[str], *, engine: str | None = None
    ) -> CheckpointState:
        """Read a checkpoint, complete or nominal.

        Args:
            checkpoint_uri: The checkpoint file.
            engine: Which engine trains from this state, `"session"` or `"training"`. Left out, it
                follows from the environment variable `BLOCKDSL_ENGINE` and the installed runtime.

        Raises:
            CheckpointNotFoundError: There is no such file.
            CheckpointError: The file is not a checkpoint or is damaged.
            EngineError: The engine is not installed.
        """
        return cls(load_state(text_of(checkpoint_uri, "checkpoint"), engine))

    @classmethod
    def save_checkpoint(
        cls,
        state: CheckpointState,
        checkpoint_uri: str | os.PathLike[str],
        include_optimizer_state: bool = False,
    ) -> None:
        """Write a checkpoint; an old file is replaced only when the new one is complete.

        Args:
            state: The state to write.
            checkpoint_uri: The checkpoint file.
            include_optimizer_state: Whether to write the optimizer's moments, step count and
                learning rate too. A run resumed from such a checkpoint continues bit for bit.
        """
        if not isinstance(state, CheckpointState):
            raise StateError(f"Not a CheckpointState: a {type(state).__name__}.")
        path = text_of(checkpoint_uri, "checkpoint")
        with state._lock:
            state._state.save(path, as_flag("include_optimizer_state", include_optimizer_state))

    @property
    def parameters(self) -> Parameters:
        """The parameters of the model."""
        return self._parameters

    @property
    def properties(self) -> Properties:
        """What the user keeps in the checkpoint beside the parameters."""
        return self._properties

    @property
    def engine(self) -> str:
        """The engine that trains from this state: `"session"` or `"training"`."""
        return self._state.engine

    @property
    def nominal(self) -> bool:
        """Whether the parameters have no values yet, as after loading a nominal checkpoint."""
        return self._state.nominal

    def __repr__(self) -> str:
        kind = "nominal, " if self.nominal else ""
        return f"CheckpointState({kind}{len(self.parameters)} parameters, engine={self.engine!r})"
