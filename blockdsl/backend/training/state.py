"""The training state over onnxruntime-training's C `CheckpointState`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np

from blockdsl.backend import checkpoint as codec
from blockdsl.backend.buffer import wrap
from blockdsl.backend.checkpoint import GROUP, Checkpoint, OptimizerGroup
from blockdsl.backend.engine import Array, Property
from blockdsl.backend.files import StrPath
from blockdsl.backend.session.state import OptimizerState
from blockdsl.backend.training.native import native, reporting
from blockdsl.errors import CheckpointError, StateError, UnsupportedTypeError

# What the C classes load of frozen parameters; they train float32 alone.
_LOADABLE = frozenset(
    [
        "bool",
        "float32",
        "float64",
        *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)),
    ]
)


class TrainingParameter:
    """A parameter in the memory of the C state."""

    def __init__(self, state: TrainingState, name: str) -> None:
        self._state = state
        self._native = state.native.get_parameter(name)
        self.name = name

    @property
    def requires_grad(self) -> bool:
        """Whether the parameter is trained."""
        return bool(self._native.requires_grad)

    @property
    def data(self) -> Array:
        """The value: on a CPU a view, which keeps the memory alive."""
        return np.asarray(self._native.data.numpy())

    @data.setter
    def data(self, value: Array) -> None:
        if self._native.data.device_name().lower() == "cpu":
            np.copyto(self.data, value, casting="no")
            return
        # The C class copies by a session of the state's module, and dies without one.
        if not self._state.modules:
            raise StateError(
                f"The parameter '{self.name}' lies on a device, and the module that copies to it "
                "is gone. Set parameters while the module exists."
            )
        with reporting(f"Setting the parameter '{self.name}'"):
            self._native.copy_from(
                self._state.native, wrap(np.require(value, requirements=["C", "A"]))._ortvalue
            )

    @property
    def grad(self) -> Array | None:
        """The accumulated gradient; `None` if the parameter is frozen or no module exists yet."""
        gradient = self._native.grad
        return np.asarray(gradient.numpy()) if gradient.has_value() else None


class TrainingState:
    """Parameters and gradients live in the C state; properties and what it loses live here.

    The C classes write checkpoints in place, so that a crash destroys the old one, and they forget
    a learning rate that was set by hand. Therefore they only ever write to a temporary file, for
    the moments that cannot be had otherwise, and checkpoints are written by our own codec.

    Attributes:
        native: The C state.
        properties: What the user wants kept.
        artifacts: The identity of the artifacts that it belongs to.
        modules: The modules that train it. Each of C's modules has gradients of its own, of which
            the state has those of the newest: all are kept the same.
        groups: The optimizer groups of the checkpoint. Once an optimizer is opened, its moments
            are elsewhere, and only the step count and the learning rate here are up to date.
    """

    engine = "training"

    def __init__(self, path: StrPath) -> None:
        loaded = codec.load(path, mapped=True)  # the C classes read the values themselves
        _check_types(loaded)
        with reporting(f"Loading the checkpoint '{os.fspath(path)}'"):
            self.native: Any = native().load_checkpoint(os.fspath(path))
        self.properties: dict[str, Property] = loaded.properties
        self.artifacts = loaded.artifacts
        self.groups: dict[str, OptimizerGroup] = loaded.groups
        for group in self.groups.values():
            for slots in group.slots.values():
                slots.update({name: np.array(array) for name, array in slots.items()})
        self.modules: WeakSet[Any] = WeakSet()
        self._optimizer: Any = None
        self._plain: OptimizerState | None = None
        self._names: list[str] = self.native.parameter_names()
        self._dtypes = {n: a.dtype for n, a in (loaded.trainable | loaded.frozen).items()}
        self._without_values = loaded if loaded.nominal else None

    @property
    def nominal(self) -> bool:
        """Whether the parameters have names only."""
        return self._without_values is not None

    def complete(self) -> None:
        """Note that all parameters of a nominal state have values now."""
        self._without_values = None

    def parameter_names(self) -> list[str]:
        """The names of all parameters, trained or frozen."""
        return self._names

    def dtypes(self) -> dict[str, np.dtype]:
        """The element types of all parameters."""
        return self._dtypes

    def parameter(self, name: str) -> TrainingParameter:
        """A parameter by its name; only of a state that is not nominal."""
        return TrainingParameter(self, name)

    def save(self, path: StrPath, include_optimizer_state: bool) -> None:
        """Write a checkpoint; the old file stands until the new one is complete."""
        if self._without_values is None:
            parameters = [self.parameter(name) for name in sorted(self._names)]
            trainable = {p.name: p.data for p in parameters if p.requires_grad}
            frozen = {p.name: p.data for p in parameters if not p.requires_grad}
        else:
            trainable, frozen = self._without_values.trainable, self._without_values.frozen
        groups = self._current_groups(Path(path)) if include_optimizer_state else {}
        checkpoint = Checkpoint(trainable, frozen, self.nominal, groups, self.properties)
        checkpoint.artifacts = self.artifacts
        codec.save(checkpoint, path)

    def adopt(self, optimizer: Any) -> None:
        """Note the C optimizer that holds the moments of this state; `None` if there are none."""
        self._optimizer, self._plain = optimizer, None
        self.groups[GROUP].slots = {}

    def plain_optimizer(self) -> OptimizerState:
        """What an optimizer other than C's remembers; it works on this state from now on."""
        if self._plain is None:
            self._plain = OptimizerState.of(self.groups.pop(GROUP, OptimizerGroup(GROUP)))
            self._optimizer = None
        return self._plain

    def _current_groups(self, path: Path) -> dict[str, OptimizerGroup]:
        """The optimizer groups with the moments as they are now."""
        if self._plain is not None:
            return {**self.groups, GROUP: self._plain.group(GROUP)}
        if self._optimizer is None:
            return self.groups
        # The C classes hand out the moments in no other way than in a checkpoint.
        beside = path.parent if path.parent.is_dir() else None  # if not, the codec will object
        try:
            with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=beside) as folder:
                file = os.path.join(folder, "moments")
                with reporting(f"Saving the checkpoint '{path}'"):
                    native().save_checkpoint(self.native, file, True)
                saved = codec.load(file).groups[GROUP]
        except OSError as error:
            raise CheckpointError(
                f"Cannot write the checkpoint '{path}': {error.strerror}."
            ) from error
        group = self.groups[GROUP]
        current = OptimizerGroup(GROUP, group.step, group.learning_rate, saved.slots)
        return {**self.groups, GROUP: current}


def _check_types(checkpoint: Checkpoint) -> None:
    for parameters, supported in (
        (checkpoint.trainable, {"float32"}),
        (checkpoint.frozen, _LOADABLE),
    ):
        for name, array in parameters.items():
            if array.dtype.name not in supported:
                raise UnsupportedTypeError(
                    f"The training engine trains float32 parameters only; '{name}' is "
                    f"{array.dtype.name}. Load the checkpoint with engine='session'."
                )
