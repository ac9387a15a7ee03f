"""How far the lists of a growing model have been looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from onnx import NodeProto


class Seen(NamedTuple):
    """How many inputs, initializers, value_infos or nodes there were, and the last of them.

    Where that one is another now, more was done than appending.
    """

    size: int
    last: Any
    name: str

    @staticmethod
    def of(items: Sequence[Any]) -> Seen:
        """The list as it is now."""
        last = items[-1] if items else None
        return Seen(len(items), last, _name(last))


def begins_as(items: Sequence[Any], seen: Seen) -> bool:
    """Whether a list still begins with what was seen of it."""
    if len(items) < seen.size:
        return False
    # The same object, not an equal one: CopyFrom makes others, and ours are not of the model then.
    return not seen.size or (items[seen.size - 1] is seen.last and _name(seen.last) == seen.name)


def _name(item: Any) -> str:
    """What an input, initializer, value_info or node is called."""
    if item is None:
        return ""
    return str(next(iter(item.output), "") if isinstance(item, NodeProto) else item.name)
