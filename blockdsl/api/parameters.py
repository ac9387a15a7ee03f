"""The parameters of a training state: their values, their gradients, by name."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from blockdsl.backend.engine import Array, ParameterHandle, State
from blockdsl.errors import StateError, UnknownParameterError, near


class Parameter:
    """One parameter. It comes from `CheckpointState.parameters`; nobody makes one by hand."""

    def __init__(self, handle: ParameterHandle) -> None:
        self._handle = handle

    @property
    def name(self) -> str:
        """The name of the parameter in the model."""
        return self._handle.name

    @property
    def requires_grad(self) -> bool:
        """Whether the parameter is trained."""
        return self._handle.requires_grad

    @property
    def data(self) -> Array:
        """The value, as a view of the training memory on a CPU.

        It follows `Optimizer.step`, and writing into it changes the parameter. Copy it to keep it.
        """
        return self._handle.data

    @data.setter
    def data(self, value: Array) -> None:
        current = self._handle.data
        try:
            array = np.asarray(value)
        except Exception as error:  # `__array__` may raise anything
            raise StateError(
                f"'{self.name}' cannot be set to an object of type {type(value).__name__}: {error}."
            ) from error
        given = f"Give an array of {current.dtype} and shape {current.shape}."
        if array.shape != current.shape:
            raise StateError(
                f"Parameter data shape mismatch: '{self.name}' has the shape {current.shape}, the "
                f"value has {array.shape}. {given}"
            )
        if array.dtype != current.dtype:
            raise StateError(
                f"Parameter data type mismatch: '{self.name}' is {current.dtype}, the value is "
                f"{array.dtype}. {given}"
            )
        self._handle.data = array

    @property
    def grad(self) -> Array | None:
        """The gradient accumulated so far, as a view of the training memory on a CPU.

        It is `None` for a frozen parameter and before a `Module` is made from the state.
        """
        return self._handle.grad

    def __repr__(self) -> str:
        return f"Parameter(name={self.name}, requires_grad={self.requires_grad})"


class Parameters:
    """All parameters of a state, sorted by name.

    Iterating gives pairs of name and `Parameter`; `in` and `[]` take names. Assigning an array to a
    name changes the parameter's value.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, name: str) -> Parameter:
        self._check_name(name)
        self._check_values(name)
        return Parameter(self._state.parameter(name))

    def __setitem__(self, name: str, value: Array) -> None:
        self._check_name(name)
        if self._state.nominal:
            raise StateError(
                f"Parameter '{name}' of a nominal checkpoint cannot be set alone. Please load all "
                "the parameter states first: "
                "`Module.copy_buffer_to_parameters(buffer, trainable_only=False)`."
            )
        Parameter(self._state.parameter(name)).data = value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._state.parameter_names()

    def __iter__(self) -> Iterator[tuple[str, Parameter]]:
        for name in sorted(self._state.parameter_names()):
            self._check_values(name)
            yield name, Parameter(self._state.parameter(name))

    def __len__(self) -> int:
        return len(self._state.parameter_names())

    def __repr__(self) -> str:
        return f"Parameters({', '.join(sorted(self._state.parameter_names()))})"

    def _check_name(self, name: str) -> None:
        if name not in self:
            raise UnknownParameterError(
                f"Parameter {name} not found. {near(str(name), self._state.parameter_names())}"
            )

    def _check_values(self, name: str) -> None:
        if self._state.nominal:
            raise StateError(
                f"The value of parameter '{name}' is not in this state, which comes from a nominal "
                "checkpoint. Please load the parameter states first: "
                "`Module.copy_buffer_to_parameters(buffer, trainable_only=False)`."
            )
