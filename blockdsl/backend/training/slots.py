"""Parameters of a C state as the session optimizer wants them, for optimizers that C knows not."""

from __future__ import annotations

from blockdsl.backend.buffer import Buffer
from blockdsl.backend.engine import Array
from blockdsl.backend.session.state import OptimizerState
from blockdsl.backend.training.state import TrainingState
from blockdsl.errors import EngineError


class SlotStore:
    """The memory of a C state as buffers, and slots beside it."""

    def __init__(self, state: TrainingState) -> None:
        self._state = state
        self._buffers: dict[str, Buffer] = {}

    def value(self, name: str) -> Buffer:
        """The memory of a parameter."""
        return self._buffer(name, self._state.parameter(name).data)

    def gradient(self, name: str) -> Buffer:
        """The memory of its gradient."""
        gradient = self._state.parameter(name).grad
        if gradient is None:
            raise EngineError(f"The parameter '{name}' has no gradient: it is frozen.")
        return self._buffer(f"{name}_grad", gradient)

    def optimizer(self) -> OptimizerState:
        """What the optimizer remembers."""
        return self._state.plain_optimizer()

    def _buffer(self, key: str, view: Array) -> Buffer:
        """One and the same buffer as long as the memory is the same."""
        held = self._buffers.get(key)
        if held is None or held.array.ctypes.data != view.ctypes.data:
            held = self._buffers[key] = Buffer(view)
        return held
