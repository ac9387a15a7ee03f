"""The training state in memory of our own: what a checkpoint holds, as buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from blockdsl.backend import checkpoint as codec
from blockdsl.backend.buffer import Buffer
from blockdsl.backend.checkpoint import GROUP, Checkpoint, OptimizerGroup
from blockdsl.backend.engine import Array, Property
from blockdsl.backend.files import StrPath
from blockdsl.backend.providers import CPU, Device
from blockdsl.errors import EngineError, StateError, UnknownParameterError, near
from blockdsl.graph.tensor import TensorType, elem_type_of


@dataclass
class OptimizerState:
    """What an optimizer remembers between steps.

    Attributes:
        step: The steps taken so far.
        learning_rate: The learning rate of the next step.
        slots: For every parameter, its slots by name.
    """

    step: int = 0
    learning_rate: float = float(np.float32(0.001))
    slots: dict[str, dict[str, Buffer]] = field(default_factory=dict)

    @classmethod
    def of(cls, group: OptimizerGroup) -> OptimizerState:
        """The state that a checkpoint's group holds; its arrays are taken over."""
        slots = {
            parameter: {name: Buffer(array) for name, array in held.items()}
            for parameter, held in group.slots.items()
        }
        return cls(group.step, float(np.float32(group.learning_rate)), slots)

    def group(self, name: str) -> OptimizerGroup:
        """The group that a checkpoint holds."""
        slots = {
            parameter: {name: buffer.array for name, buffer in held.items()}
            for parameter, held in self.slots.items()
        }
        return OptimizerGroup(name, self.step, self.learning_rate, slots)


class SessionParameter:
    """One parameter of a state."""

    def __init__(self, state: SessionState, name: str) -> None:
        self._state = state
        self.name = name

    @property
    def requires_grad(self) -> bool:
        """Whether the parameter is trained."""
        return self._state.is_trainable(self.name)

    @property
    def data(self) -> Array:
        """The value: on the CPU the training memory itself, elsewhere a copy of it."""
        return self._state.value(self.name).array

    @data.setter
    def data(self, value: Array) -> None:
        buffer = self._state.value(self.name)
        array = np.asarray(value)
        given, held = (
            TensorType(elem_type_of(dtype), tuple(shape))
            for dtype, shape in ((array.dtype, array.shape), (buffer.dtype, buffer.shape))
        )
        if array.dtype != buffer.dtype:
            raise StateError(
                f"Parameter data type mismatch: '{self.name}' is {held} but was given {given}."
            )
        if array.shape != buffer.shape:
            raise StateError(
                f"Parameter data shape mismatch: '{self.name}' is {held} but was given {given}."
            )
        buffer.write(array)

    @property
    def grad(self) -> Array | None:
        """The accumulated gradient; `None` if the parameter is frozen or no module exists yet."""
        gradient = self._state.gradients.get(self.name)
        return None if gradient is None else gradient.array


class SessionState:
    """Parameters, gradients, optimizer state and properties in one place, on one device.

    Args:
        checkpoint: What the state begins with; its arrays become the training memory.

    Attributes:
        device: Where the buffers lie; the first module decides.
        gradients: The gradients, once a module exists.
        optimizers: The state of every optimizer group.
        properties: What the user wants kept.
        artifacts: The identity of the artifacts that it belongs to.
    """

    engine = "session"

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.nominal = checkpoint.nominal
        self.properties: dict[str, Property] = checkpoint.properties
        self.artifacts = checkpoint.artifacts
        self.device = CPU
        self.gradients: dict[str, Buffer] = {}
        self.optimizers = {n: OptimizerState.of(g) for n, g in checkpoint.groups.items()}
        self._trainable = set(checkpoint.trainable)
        # Of a nominal checkpoint these are placeholders: the first module gives them their shapes.
        arrays = checkpoint.trainable | checkpoint.frozen
        self._values = {name: Buffer(array) for name, array in arrays.items()}
        self._settled = False

    def parameter_names(self) -> list[str]:
        """The names of all parameters, trained or frozen, in alphabetical order."""
        return sorted(self._values)

    def parameter(self, name: str) -> SessionParameter:
        """A parameter by its name."""
        self.value(name)
        return SessionParameter(self, name)

    def is_trainable(self, name: str) -> bool:
        """Whether a parameter is trained."""
        return name in self._trainable

    def value(self, name: str) -> Buffer:
        """The memory of a parameter."""
        try:
            return self._values[name]
        except KeyError:
            known = near(name, self.parameter_names())
            raise UnknownParameterError(f"Parameter {name} not found. {known}") from None

    def gradient(self, name: str) -> Buffer:
        """The memory of a parameter's gradient, which begins with zeros."""
        if name not in self.gradients:
            value = self.value(name)
            self.gradients[name] = Buffer.zeros(value.dtype, value.shape, self.device)
        return self.gradients[name]

    def optimizer(self) -> OptimizerState:
        """The state of the optimizer; a new one where none has stepped yet."""
        return self.optimizers.setdefault(GROUP, OptimizerState())

    def settle(self, device: Device, types: Mapping[str, TensorType]) -> None:
        """Fit the state to a training model: its device, and the shapes of its parameters.

        Raises:
            EngineError: A parameter has another type than in the model, or the state lies on
                another device already.
        """
        for name, wanted in types.items():
            self._check_type(name, wanted)
        if self._settled and device != self.device:
            raise EngineError(
                f"The state lies on '{self.device}', where its first module put it; a module on "
                f"'{device}' cannot share it. Load the checkpoint again for that module."
            )
        if not self._settled:
            # Nothing is changed before all of it has found room there.
            moved = {name: b.to(device) for name, b in self._values.items()}
            every = [s for o in self.optimizers.values() for s in o.slots.values()]
            slots_moved = [{name: b.to(device) for name, b in slots.items()} for slots in every]
            self._values = moved
            for slots, found in zip(every, slots_moved, strict=True):
                slots.update(found)
            self.device = device
            self._settled = True

    def save(self, path: StrPath, include_optimizer_state: bool) -> None:
        """Write a checkpoint; the old file stands until the new one is complete."""
        arrays = {name: self._values[name].array for name in self.parameter_names()}
        groups = {n: o.group(n) for n, o in self.optimizers.items()}
        codec.save(
            Checkpoint(
                trainable={n: a for n, a in arrays.items() if n in self._trainable},
                frozen={n: a for n, a in arrays.items() if n not in self._trainable},
                nominal=self.nominal,
                groups=groups if include_optimizer_state else {},
                properties=self.properties,
                artifacts=self.artifacts,
            ),
            path,
        )

    def _check_type(self, name: str, wanted: TensorType) -> None:
        value = self.value(name)
        held = TensorType(elem_type_of(value.dtype), value.shape)
        if wanted.elem_type == held.elem_type and wanted.admits(value.shape):
            return
        if self.nominal and not self._settled and wanted.elem_type == held.elem_type:
            shape = tuple(dim for dim in wanted.shape or () if isinstance(dim, int))
            self._values[name] = Buffer.zeros(value.dtype, shape)
            return
        raise EngineError(
            f"The parameter '{name}' is {held} in the checkpoint but {wanted} in the model. "
            "The two come from different runs of generate_artifacts."
        )
