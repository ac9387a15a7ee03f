"""The properties of a training state: what a user wants kept with the parameters."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np

from blockdsl.backend.engine import Property, State
from blockdsl.errors import StateError, UnknownParameterError, near


def as_stored(name: str, value: object) -> Property:
    """A property's value as a checkpoint holds it: a 64-bit integer, a 32-bit float or a string.

    Example:
        >>> as_stored("epoch", np.int32(3)), as_stored("loss", 0.1), as_stored("done", True)
        (3, 0.10000000149011612, 1)
        >>> as_stored("best", np.float32(1.5)), as_stored("tag", b"v1")
        (1.5, 'v1')
        >>> as_stored("history", [1.0, 0.5])
        Traceback (most recent call last):
        blockdsl.errors.StateError: Property 'history' cannot hold a list: properties are integers,\
 floats and strings. Turn it into a string, by `json.dumps` for example.
    """
    if isinstance(value, str | bytes):
        try:
            return value.decode() if isinstance(value, bytes) else value.encode().decode()
        except UnicodeError as error:
            raise StateError(
                f"Property '{name}' cannot hold {value!r}: it is not valid Unicode."
            ) from error
    if isinstance(value, bool | np.bool_ | numbers.Integral):
        integer = int(value)
        return integer if -(2**63) <= integer < 2**63 else _float32(integer)
    if isinstance(value, numbers.Real):
        return _float32(value)
    raise StateError(
        f"Property '{name}' cannot hold a {type(value).__name__}: properties are integers, floats "
        "and strings. Turn it into a string, by `json.dumps` for example."
    )


def _float32(value: Any) -> float:
    # As the format has it, what is too large is infinite.
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    with np.errstate(over="ignore"):
        return float(np.float32(number))


class Properties:
    """All properties of a state, sorted by name.

    Iterating gives pairs of name and value; `in` and `[]` take names. Values are integers (64
    bits), floats (32 bits: they are rounded when set, not only when saved) and strings.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, name: str) -> Property:
        if name not in self:
            raise UnknownParameterError(
                f"Property {name} not found. {near(str(name), self._state.properties)}"
            )
        return self._state.properties[name]

    def __setitem__(self, name: str, value: Property) -> None:
        if not isinstance(name, str):
            raise StateError(f"The name of a property is a string, not a {type(name).__name__}.")
        self._state.properties[name] = as_stored(name, value)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._state.properties

    def __iter__(self) -> Iterator[tuple[str, Property]]:
        return iter(sorted(self._state.properties.items()))

    def __len__(self) -> int:
        return len(self._state.properties)

    def __repr__(self) -> str:
        return f"Properties({', '.join(f'{name}={value!r}' for name, value in self)})"
