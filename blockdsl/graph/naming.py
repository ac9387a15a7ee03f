"""Names of nodes and tensors: readable, scoped by block, unique, the same on every build."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Namer:
    """Hands out names that nothing in the model has yet.

    Example:
        >>> namer = Namer()
        >>> with namer.scope("MSELoss"):
        ...     [namer.unique("Sub"), namer.unique("Sub")]
        ['MSELoss/Sub', 'MSELoss/Sub_1']
        >>> with namer.scope("MSELoss"):
        ...     namer.unique("Sub")
        'MSELoss_1/Sub'
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}
        self._scopes: list[str] = []

    def copy(self) -> Namer:
        """A namer that knows the same names and goes its own way from here."""
        twin = Namer()
        twin._taken = set(self._taken)
        twin._next = dict(self._next)
        twin._scopes = list(self._scopes)
        return twin

    def take(self, name: str) -> None:
        """Reserve a name that the model has already."""
        self._taken.add(name)

    def unique(self, hint: str) -> str:
        """A new name in the current scope."""
        return self._free("/".join([*self._scopes[-1:], hint]))

    @contextmanager
    def scope(self, name: str) -> Iterator[str]:
        """Names that are handed out inside begin with this scope; scopes nest."""
        full = self._free("/".join([*self._scopes[-1:], name]))
        self._scopes.append(full)
        try:
            yield full
        finally:
            self._scopes.pop()

    @contextmanager
    def root(self) -> Iterator[None]:
        """Leave all scopes for a while: names inside begin at the top."""
        saved, self._scopes = self._scopes, []
        try:
            yield
        finally:
            self._scopes = saved

    @property
    def path(self) -> str:
        """The current scope."""
        return self._scopes[-1] if self._scopes else ""

    def _free(self, name: str) -> str:
        candidate, number = name, self._next.get(name, 0)
        while candidate in self._taken:
            number += 1
            candidate = f"{name}_{number}"
        self._next[name] = number
        self._taken.add(candidate)
        return candidate
