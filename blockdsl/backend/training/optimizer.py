"""Optimizer models over a C state: by the C `Optimizer` if it knows them, else by a session."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx
from onnx import ModelProto

from blockdsl.backend.checkpoint import EXTERNAL_DATA_THRESHOLD, GROUP, OptimizerGroup
from blockdsl.backend.engine import Stepper
from blockdsl.backend.files import is_ort_format, read_model
from blockdsl.backend.session.optimizer import PlainOptimizer, plain_form
from blockdsl.backend.training.clipping import clip, take_out_clipping
from blockdsl.backend.training.module import TrainingModule
from blockdsl.backend.training.native import native, native_device, reporting
from blockdsl.backend.training.slots import SlotStore
from blockdsl.errors import StateError
from blockdsl.graph.schema import MICROSOFT

# The optimizers that the C class knows, with the slots that it looks for in a checkpoint.
ALGORITHMS: dict[str, tuple[str, ...]] = {
    "AdamWOptimizer": ("momentum0", "momentum1"),
    "SGDOptimizerV2": (),
}

# The C classes write moments into the checkpoint file itself, and do not write one beyond 2 GiB.
_WRITABLE = 2**31 - 2**24


class NativeStepper:
    """Steps by the C `Optimizer`.

    Args:
        module: The module whose parameters are changed.
        optimizer_model: The optimizer model.
        slots: The slots that the model's algorithm reads; `None` if it is not known.
        called: How the user calls the optimizer model.
        largest_norm: What the gradients are clipped to before each step; None leaves that, if it
            is to be, to the model.
    """

    def __init__(
        self,
        module: TrainingModule,
        optimizer_model: str,
        slots: tuple[str, ...] | None,
        called: str,
        largest_norm: float | None = None,
    ) -> None:
        state = module.state
        self._group = state.groups.setdefault(GROUP, OptimizerGroup(GROUP))
        self._module, self._largest_norm = module, largest_norm
        _check_slots(called, self._group, slots or ())
        with reporting(f"Loading the optimizer model '{called}'"):
            self._native: Any = native().Optimizer(
                optimizer_model, state.native, native_device(module.device), module.options
            )
        # The C class begins with 0.001 whatever the checkpoint says.
        self.learning_rate = self._group.learning_rate
        # Of what it keeps for an algorithm without slots, nothing is ever read.
        state.adopt(None if slots == () else self._native)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return float(self._native.get_learning_rate())

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._native.set_learning_rate(value)
        self._group.learning_rate = self.learning_rate

    @property
    def step_count(self) -> int:
        """The steps taken so far, those before a resume included."""
        return self._group.step

    def step(self) -> None:
        """Take one step."""
        if self._largest_norm is not None:
            trained = self._module.parameters(trainable_only=True)
            clip([p.grad for p in trained if p.grad is not None], self._largest_norm)
        with reporting("An optimizer step"):
            self._native.optimizer_step()
        self._group.step += 1


class DeferredStepper:
    """An optimizer over a nominal state, opened when the state has been completed.

    The C class does not survive otherwise: it dies when it is asked for a learning rate.
    """

    def __init__(self, open_it: Callable[[], Stepper]) -> None:
        self._open = open_it
        self._opened: Stepper | None = None

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return self._stepper().learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._stepper().learning_rate = value

    @property
    def step_count(self) -> int:
        """The steps taken so far."""
        return self._stepper().step_count

    def step(self) -> None:
        """Take one step."""
        self._stepper().step()

    def _stepper(self) -> Stepper:
        if self._opened is None:
            self._opened = self._open()
        return self._opened


def open_stepper(module: TrainingModule, optimizer_model: str) -> Stepper:
    """Open an optimizer model over the state of a module.

    Raises:
        ModelFileError: The file is missing or no model.
        StateError: The checkpoint holds the state of another optimizer.
        EngineError: The model does not fit the state, or the runtime refuses it.
    """

    def open_native(slots: tuple[str, ...] | None) -> Stepper:
        return NativeStepper(module, optimizer_model, slots, optimizer_model)

    def open_clipped(model: ModelProto, slots: tuple[str, ...], largest_norm: float) -> Stepper:
        with TemporaryDirectory() as folder:
            path = os.path.join(folder, "optimizer_model.onnx")
            onnx.save(model, path)
            return NativeStepper(module, path, slots, optimizer_model, largest_norm)

    def open_plain(model: ModelProto) -> Stepper:
        trainable = [parameter.name for parameter in module.parameters(trainable_only=True)]
        folder = Path(optimizer_model).parent
        store = SlotStore(module.state)
        plain = plain_form(model, store, trainable)
        return PlainOptimizer(plain, store, trainable, module.device, module.options, folder)

    def open_either() -> Stepper:
        called = {node.op_type for node in model.graph.node if node.domain == MICROSOFT}
        known = [slots for name, slots in ALGORITHMS.items() if name in called]
        if not known or _bytes_written(module, known[0]) > _WRITABLE:
            return open_plain(model)
        # On another device the gradients are no views.
        norm = take_out_clipping(model) if module.device.is_host else None
        return open_native(known[0]) if norm is None else open_clipped(model, known[0], norm)

    open_it: Callable[[], Stepper]
    if is_ort_format(optimizer_model, "optimizer model"):
        open_it = partial(open_native, None)  # of what kind it is cannot be seen
    else:
        model = read_model(optimizer_model, "optimizer model", weights=False)
        open_it = open_either
    return DeferredStepper(open_it) if module.state.nominal else open_it()


def _bytes_written(module: TrainingModule, slots: tuple[str, ...]) -> int:
    """The bytes of tensors that the C classes would write into a checkpoint file itself."""
    if not slots:
        return 0
    parameters = sum(p.data.nbytes for p in module.parameters(trainable_only=False))
    trained = sum(p.data.nbytes for p in module.parameters(trainable_only=True))
    inside = parameters if parameters < EXTERNAL_DATA_THRESHOLD else 0
    return inside + len(slots) * trained


def _check_slots(model: str, group: OptimizerGroup, slots: tuple[str, ...]) -> None:
    """Check that the state of another optimizer is not taken for this one's."""
    for name, held in group.slots.items():
        if not set(slots) <= held.keys():
            raise StateError(
                f"The checkpoint holds the state of another optimizer than '{model}': the "
                f"parameter '{name}' has the slots {sorted(held)}, not {sorted(slots)}. Use the "
                "optimizer that it was saved with, or save the checkpoint with "
                "include_optimizer_state=False to start anew."
            )
