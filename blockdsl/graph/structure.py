"""Nested structures of tensors: tuples, named tuples, lists, dictionaries and data classes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def leaves_of(nested: Any) -> Iterator[Any]:
    """The parts of a structure that are no structures themselves, in order.

    Example:
        >>> list(leaves_of({"a": "x", "b": ("y", ["z"])}))
        ['x', 'y', 'z']
    """
    parts = _parts(nested)
    if parts is None:
        yield nested
    else:
        for part in parts.values():
            yield from leaves_of(part)


def mapped(function: Callable[[Any], Any], nested: Any) -> Any:
    """The same structure with a function applied to each of its leaves; a copy if one changes.

    Example:
        >>> mapped(str.upper, {"a": "x", "b": ("y", ["z"])})
        {'a': 'X', 'b': ('Y', ['Z'])}
    """
    parts = _parts(nested)
    if parts is None:
        return function(nested)
    results = {key: mapped(function, part) for key, part in parts.items()}
    if all(results[key] is part for key, part in parts.items()):
        return nested
    if isinstance(nested, Mapping):
        twin: Any = copy.copy(nested) if isinstance(nested, dict) else {}
        twin.update(results)
        return twin
    if dataclasses.is_dataclass(nested) and not isinstance(nested, type):
        return dataclasses.replace(nested, **results)
    make = getattr(type(nested), "_make", type(nested))
    return make(results.values())


def _parts(nested: Any) -> dict[Any, Any] | None:
    """The parts of a structure by key, position or field; `None` of a leaf."""
    if isinstance(nested, Mapping):
        return dict(nested)
    if isinstance(nested, tuple | list):
        return dict(enumerate(nested))
    if dataclasses.is_dataclass(nested) and not isinstance(nested, type):
        return {f.name: getattr(nested, f.name) for f in dataclasses.fields(nested) if f.init}
    return None
