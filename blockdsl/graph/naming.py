"""Names of nodes and tensors: readable, scoped by block, unique, the same on every build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

import numpy as np


@dataclass
class Scope:
    """A prefix of names, open while a block's `build` runs or a part of it is named.

    Args:
        path: The prefix.
        block: The block whose `build` runs in it, None for a part of one.
        in_build: Whether a block's `build` runs here or around it.
    """

    path: str
    block: Any = None
    in_build: bool = False
    blocks: dict[int, Any] = field(default_factory=dict)
    """The blocks that were made while the scope was the innermost one, by id."""
    opened: Counter[str] = field(default_factory=Counter)
    """How often a scope of each path has been opened in it."""


class Namer:
    """Unique names, and the scopes of blocks.

    A scope that is opened inside a block's `build` is identified by its position there: the second
    `build` of the same block opens the same scopes as the first. Outside of blocks every scope is
    a new one.

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
        self._prefixes: set[str] = set()
        self._next: dict[str, int] = {}
        self._positions: dict[tuple[str, int], str] = {}
        self._paths: dict[int, tuple[ref[Any], str]] = {}
        self.scopes: list[Scope] = []

    def copy(self) -> Namer:
        """Return an independent namer that knows the same names."""
        twin = Namer()
        twin._taken, twin._prefixes = set(self._taken), set(self._prefixes)
        for table in ("_next", "_positions", "_paths"):
            setattr(twin, table, dict(getattr(self, table)))
        twin.scopes = list(self.scopes)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the scopes of blocks: a pickled model is built no further."""
        return {**self.__dict__, "_paths": {}, "scopes": []}

    def take(self, name: str) -> None:
        """Reserve a name that the model has already."""
        self._taken.add(name)
        prefix = name.rpartition("/")[0]
        while prefix and prefix not in self._prefixes:
            self._prefixes.add(prefix)
            prefix = prefix.rpartition("/")[0]

    def unique(self, hint: str) -> str:
        """Return a new name in the current scope."""
        name = self._free(self.join(hint), lambda name: name in self._taken)
        self.take(name)
        return name

    def join(self, hint: str) -> str:
        """Return a name in the current scope, taken or not."""
        return "/".join([*filter(None, [self.path]), hint])

    @contextmanager
    def scope(self, name: str) -> Iterator[str]:
        """Open a scope in the current one."""
        with self.enter(self._open(self.scopes[-1:], self.join(name))) as path:
            yield path

    @contextmanager
    def enter(self, path: str, block: Any = None) -> Iterator[str]:
        """Begin names with a path while a block's `build` runs."""
        in_build = block is not None or any(scope.in_build for scope in self.scopes[-1:])
        self.scopes.append(Scope(path, block, in_build))
        try:
            yield path
        finally:
            self.scopes.pop()

    @contextmanager
    def root(self) -> Iterator[None]:
        """Leave all scopes for a while: names inside begin at the top."""
        saved, self.scopes = self.scopes, []
        try:
            yield
        finally:
            self.scopes = saved

    @property
    def path(self) -> str:
        """The current scope."""
        return self.scopes[-1].path if self.scopes else ""

    # -- scopes of blocks ----------------------------------------------------------------------

    def note(self, block: Any) -> None:
        """Note that a block is made here: inside a `build`, its position identifies it."""
        if self.scopes and self.scopes[-1].in_build:
            self.scopes[-1].blocks[id(block)] = block

    def maker(self, block: Any) -> list[Scope]:
        """Return the scope of the `build` that made a block and still runs, if there is one."""
        return [scope for scope in self.scopes if scope.blocks.get(id(block)) is block]

    def path_of(self, block: Any) -> str | None:
        """Return the scope of a block, None if it has none yet."""
        reference, path = self._paths.get(id(block), (None, None))
        return path if reference is not None and reference() is block else None

    def assign(self, block: Any, path: str) -> str:
        """Give a block a scope: its own, or that of the block that was made in its place before."""
        path = self._open(self.maker(block), path)
        self._paths[id(block)] = ref(block), path
        return path

    def _open(self, within: list[Scope], path: str) -> str:
        """Return the path of a new scope, or of the one at the same position of a `build`."""
        if not (within and within[0].in_build):
            return self._new_scope(path)
        position = path, within[0].opened[path]
        within[0].opened[path] += 1
        if position not in self._positions:
            self._positions[position] = self._new_scope(path)
        return self._positions[position]

    def _new_scope(self, path: str) -> str:
        name = self._free(path, lambda name: name in self._taken or name in self._prefixes)
        self.take(name)
        return name

    def _free(self, name: str, is_taken: Callable[[str], bool]) -> str:
        candidate, number = name, self._next.get(name, 0)
        while is_taken(candidate):
            number += 1
            candidate = f"{name}_{number}"
        self._next[name] = number
        return candidate


def constant_name(array: np.ndarray, hint: str) -> str:
    """Return the name of a constant; scalars and short vectors carry their value: `[0,2]`."""
    if array.size <= 4 and array.dtype.kind in "fib":
        return f"{hint}/{array.dtype.name}/{array.tolist()}".replace(" ", "")
    return f"{hint}/{array.dtype.name}"
