"""Optimizer models: one session whose inputs and outputs are the training state itself.

A *plain* optimizer model has ordinary inputs `learning_rate` and `step`, and for every parameter
`<p>`, `<p>_grad` and its slots `<p>.<slot>`; an output `<input>.out` holds the new value of an
input. onnxruntime-training's models, which take sequences of tensors, are brought into this form
when they are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import onnxruntime as ort
from onnx import ModelProto

from blockdsl.backend.buffer import Buffer
from blockdsl.backend.files import StrPath
from blockdsl.backend.in_place import InPlaceCheck
from blockdsl.backend.providers import Device
from blockdsl.backend.session.binding import BoundSession
from blockdsl.backend.session.load import load_rewritable, open_session
from blockdsl.backend.session.module import SessionModule
from blockdsl.backend.session.state import OptimizerState
from blockdsl.errors import EngineError, near
from blockdsl.graph.layout import NEW
from blockdsl.graph.tensor import TensorType, elem_type_of, is_static
from blockdsl.passes.unroll_optimizer import unroll_optimizer

OPTIMIZER = "optimizer model"
SCHEDULE = ("learning_rate", "step")  # the inputs that are fed anew in every step


class ParameterStore(Protocol):
    """What an optimizer changes; the session engine's state is one.

    A buffer stays the same object as long as its memory does.
    """

    def value(self, name: str) -> Buffer:
        """The memory of a parameter."""

    def gradient(self, name: str) -> Buffer:
        """The memory of its gradient."""

    def optimizer(self) -> OptimizerState:
        """What the optimizer remembers; slots that are missing there are added."""


class PlainOptimizer:
    """Steps by a plain optimizer model over a store of parameters.

    Args:
        model: A plain optimizer model; it is taken over.
        store: The parameters; slots that they lack are added.
        trainable: The names of the parameters that are trained.
        device: Where the session runs and the store's memory lies.
        options: The user's session options.
        folder: Where external weights of the model lie.

    Raises:
        EngineError: The model and the store do not belong together.
    """

    def __init__(
        self,
        model: ModelProto,
        store: ParameterStore,
        trainable: Sequence[str],
        device: Device,
        options: ort.SessionOptions | None = None,
        folder: StrPath = ".",
    ) -> None:
        self._state = store.optimizer()
        self._store = store
        self._feeds = [v.name for v in model.graph.input if v.name in SCHEDULE]
        self._sources = _sources(model, trainable)
        self._fill_slots(model, device)
        self._in_place = InPlaceCheck(model.graph)
        self._outputs = {
            v.name: v.name.removesuffix(NEW)
            for v in model.graph.output
            if v.name.removesuffix(NEW) in self._sources
        }
        self._opened = open_session(model, OPTIMIZER, device, options, folder)
        self._device = device
        self._bound: dict[str, Buffer] = {}
        self._bind()

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step; it holds 32 bits."""
        return self._state.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._state.learning_rate = float(np.float32(value))

    @property
    def step_count(self) -> int:
        """The steps taken so far, those before a resume included."""
        return self._state.step

    def step(self) -> None:
        """Take one step along the gradients, which stay as they are."""
        self._bind()
        schedule = {
            "learning_rate": np.full(1, self._state.learning_rate, np.float32),
            "step": np.full(1, self._state.step + 1, np.int64),
        }
        self._session.run([schedule[name] for name in self._feeds])
        self._state.step += 1

    def _bind(self) -> None:
        """Bind the session to the store's memory, anew if any of it has been replaced."""
        memory = {name: self._memory(*source) for name, source in self._sources.items()}
        if self._bound.keys() == memory.keys() and all(
            memory[name] is held for name, held in self._bound.items()
        ):
            return
        self._bound = memory
        self._session = BoundSession(
            self._opened,
            self._device,
            feeds=self._feeds,
            results=[],
            inputs=memory,
            outputs={output: memory[source] for output, source in self._outputs.items()},
            in_place=self._in_place,
        )

    def _memory(self, kind: str, parameter: str) -> Buffer:
        match kind:
            case "value":
                return self._store.value(parameter)
            case "gradient":
                return self._store.gradient(parameter)
            case slot:
                return self._state.slots[parameter][slot.removeprefix(".")]

    def _fill_slots(self, model: ModelProto, device: Device) -> None:
        """Zeros for slots that no checkpoint has brought."""
        types = {v.name: TensorType.of(v.type) for v in model.graph.input}
        wanted: dict[str, dict[str, TensorType]] = {}
        for name, (kind, parameter) in self._sources.items():
            if kind.startswith("."):
                wanted.setdefault(parameter, {})[kind[1:]] = _slot_type(name, types[name])
        for parameter, slots in wanted.items():
            held = self._state.slots.setdefault(parameter, {})
            _check_slots(parameter, held, slots)
            for slot, declared in slots.items():
                if slot not in held:
                    shape = tuple(dim for dim in declared.shape or () if isinstance(dim, int))
                    held[slot] = Buffer.zeros(declared.dtype, shape, device)
                held[slot] = held[slot].to(device)


def open_stepper(module: SessionModule, path: StrPath) -> PlainOptimizer:
    """Open an optimizer model over the state of a module.

    Raises:
        ModelFileError: The file is missing or no model.
        EngineError: The model does not fit the state, or the runtime refuses it.
    """
    trainable = [parameter.name for parameter in module.parameters(trainable_only=True)]
    model = plain_form(load_rewritable(path, OPTIMIZER), module.state, trainable)
    folder = Path(path).parent
    return PlainOptimizer(model, module.state, trainable, module.device, module.options, folder)


def plain_form(model: ModelProto, store: ParameterStore, trainable: Sequence[str]) -> ModelProto:
    """An optimizer model in its plain form: itself, unless it takes sequences of tensors."""
    if not any(value.type.HasField("sequence_type") for value in model.graph.input):
        return model
    values = [(name, store.value(name)) for name in trainable]
    parameters = [(name, elem_type_of(value.dtype), value.shape) for name, value in values]
    return unroll_optimizer(model, parameters)


def _sources(model: ModelProto, trainable: Iterable[str]) -> dict[str, tuple[str, str]]:
    """What every input but those of the schedule is: its kind and its parameter."""
    by_length = sorted(trainable, key=len, reverse=True)
    known = set(by_length)
    sources = {}
    for value in model.graph.input:
        name = value.name
        if name in SCHEDULE:
            continue
        if name in known:
            sources[name] = ("value", name)
        elif name.removesuffix("_grad") in known:
            sources[name] = ("gradient", name.removesuffix("_grad"))
        else:
            # Parameters have dots in their names too: the longest that fits is meant.
            owner = _owner(name, known)
            if owner is None:
                raise EngineError(
                    f"The optimizer model has an input '{name}' that belongs to no trained "
                    f"parameter. {near(name, sorted(known))} The optimizer model and the "
                    "checkpoint come from different runs of generate_artifacts."
                )
            sources[name] = (name[len(owner) :], owner)
    return sources


def _owner(name: str, parameters: set[str]) -> str | None:
    """The longest parameter `p` for which a name is `p.<slot>`."""
    owner = name
    while "." in owner:
        owner = owner.rpartition(".")[0]
        if owner in parameters:
            return owner
    return None


def _slot_type(name: str, kind: TensorType | None) -> TensorType:
    if kind is None or not is_static(kind.shape):
        raise EngineError(
            f"The optimizer model's input '{name}' has no static tensor type, so that no memory "
            "can be made for it."
        )
    return kind


def _check_slots(parameter: str, held: dict[str, Buffer], wanted: dict[str, TensorType]) -> None:
    """What a checkpoint remembers of a parameter must be what the optimizer needs, or nothing."""
    if not held:
        return
    fits = all(
        slot in held and held[slot].shape == kind.shape and held[slot].dtype == kind.dtype
        for slot, kind in wanted.items()
    )
    if not fits:
        there = ", ".join(f"{slot} {b.dtype.name}{list(b.shape)}" for slot, b in held.items())
        here = ", ".join(f"{slot} {kind}" for slot, kind in wanted.items())
        raise EngineError(
            f"The checkpoint holds the state of another optimizer: for '{parameter}' it has "
            f"{there}, and this optimizer needs {here}. Use the optimizer that it was saved with, "
            "or save the checkpoint with include_optimizer_state=False to start anew."
        )
