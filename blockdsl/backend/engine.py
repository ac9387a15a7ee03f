"""What an engine is: the three things that `blockdsl.api` needs of a runtime.

Two engines implement it: `session` (any stock ONNX Runtime) and `training` (the C classes of
onnxruntime-training). Both read the same artifacts and pass the same tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Property = int | float | str


class ParameterHandle(Protocol):
    """One parameter of a training state; its arrays are views of the training memory on a CPU."""

    @property
    def name(self) -> str:
        """The name of the parameter in the model."""

    @property
    def requires_grad(self) -> bool:
        """Whether the parameter is trained."""

    @property
    def data(self) -> Array:
        """The value; setting it copies an array of the same type and shape into the memory."""

    @data.setter
    def data(self, value: Array) -> None: ...

    @property
    def grad(self) -> Array | None:
        """The accumulated gradient; `None` if it is frozen or no module exists yet."""


class State(Protocol):
    """Parameters, gradients, optimizer slots and properties: what a checkpoint holds."""

    @property
    def engine(self) -> str:
        """The engine's name: `"session"` or `"training"`."""

    artifacts: str
    """The identity of the artifacts that the state belongs to, "" if that is not known."""

    @property
    def nominal(self) -> bool:
        """Whether the parameters have names, but no values yet."""

    @property
    def properties(self) -> MutableMapping[str, Property]:
        """What the user wants kept with the parameters."""

    def parameter_names(self) -> list[str]:
        """The names of all parameters, trained or frozen."""

    def parameter(self, name: str) -> ParameterHandle:
        """A parameter by its name; only of a state that is not nominal."""

    def save(self, path: str | os.PathLike[str], include_optimizer_state: bool) -> None:
        """Write a checkpoint; the old file stands until the new one is complete."""


class Trainable(Protocol):
    """A training model and its evaluation model over one state."""

    artifacts: str
    """The identity of the training model's artifacts, "" if that is not known."""

    @property
    def state(self) -> State:
        """The state that it trains."""

    def train_step(self, inputs: Sequence[Any]) -> list[Any]:
        """Run forward and backward; take arrays or OrtValues, give one OrtValue per output."""

    def eval_step(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the evaluation model; take and give what `train_step` does."""

    def lazy_reset_grad(self) -> None:
        """Make the next training step overwrite the gradients instead of adding to them."""

    def input_names(self, training: bool) -> list[str]:
        """What a step is fed, in order; nothing if there is no such model."""

    def output_names(self, training: bool) -> list[str]:
        """What a step returns, in order; nothing if there is no such model."""

    def parameters(self, trainable_only: bool) -> Iterator[ParameterHandle]:
        """The parameters in the order of the training model's inputs."""

    def parameters_size(self, trainable_only: bool) -> int:
        """The number of elements of all parameters; known of a nominal state too."""

    def parameters_dtype(self, trainable_only: bool) -> np.dtype:
        """The element type of a flat copy of the parameters; known of a nominal state too."""

    def read_parameters(self, trainable_only: bool) -> Array:
        """A flat copy of the parameters, in the order of the model's inputs."""

    def write_parameters(self, flat: Array, trainable_only: bool) -> None:
        """Set the parameters from what `read_parameters` gives; complete a nominal state."""

    def export_model_for_inferencing(
        self, path: str | os.PathLike[str], output_names: Sequence[str]
    ) -> None:
        """Write the part of the eval model that some outputs need, with the current values.

        Without an eval model it is made of the training model.
        """


class Stepper(Protocol):
    """An optimizer model over one state."""

    learning_rate: float

    @property
    def step_count(self) -> int:
        """The steps taken so far, those before a resume included; learning rates follow it."""

    def step(self) -> None:
        """Take one step along the gradients, which stay as they are."""
