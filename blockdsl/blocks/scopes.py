"""Scopes of blocks: the attributes by which blocks hold each other are the path of their names."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from blockdsl.graph.naming import Namer

Held = tuple[str, Any]
"""The path of a block below the one that holds it, and the block."""


def scope_of(names: Namer, block: Any, kind: type | tuple[type, ...]) -> str:
    """Return the scope of a block, which it gets when it is called first.

    A block that another one holds is named after the attribute; one that nothing holds, after its
    class. The outermost block that holds it decides, so that the order of calls does not.

    Args:
        names: The names of the model.
        block: The block.
        kind: The classes of blocks.

    Returns:
        The path.
    """
    if names.path_of(block) is None:
        holders = [scope.block for scope in names.scopes if scope.block is not None]
        for holder in holders[-1:] if names.maker(block) else holders:
            _assign_held(names, holder, kind)
    path = names.path_of(block)
    if path is None:
        path = names.assign(block, names.join(type(block).__name__))
    return path


def _assign_held(names: Namer, holder: Any, kind: type | tuple[type, ...]) -> None:
    """Give a scope to every block below another that has none yet, those nearer to it first."""
    queue, visited = deque([holder]), {id(holder)}
    while queue:
        block = queue.popleft()
        for attribute, child in held_blocks(block, kind):
            if id(child) not in visited:
                visited.add(id(child))
                queue.append(child)
                if names.path_of(child) is None:
                    names.assign(child, f"{names.path_of(block)}/{attribute}")


def held_blocks(block: Any, kind: type | tuple[type, ...]) -> Iterator[Held]:
    """Yield the blocks in the attributes of a block and in the containers that these are.

    Example:
        >>> from blockdsl.blocks import Block, Relu, Sequential, Tanh
        >>> block = Sequential(Relu(), Tanh())
        >>> block.heads = {"policy": Tanh()}
        >>> list(held_blocks(block, Block))
        [('blocks.0', Relu()), ('blocks.1', Tanh()), ('heads.policy', Tanh())]
    """
    for name, value in _attributes(block):
        yield from _in_container(name, value, kind, set())


def _in_container(
    path: str, value: Any, kind: type | tuple[type, ...], around: set[int]
) -> Iterator[Held]:
    if isinstance(value, kind):
        yield path, value
    elif isinstance(value, dict | list | tuple) and id(value) not in around:
        # A container may hold itself.
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _in_container(f"{path}.{key}", item, kind, around | {id(value)})


def _attributes(block: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object in the order of making, then those of its classes."""
    for cls in reversed(type(block).__mro__):
        slots = vars(cls).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            private = slot.startswith("__") and not slot.endswith("__")
            name = f"_{cls.__name__.lstrip('_')}{slot}" if private else slot
            if name != "__dict__" and hasattr(block, name):
                yield name, getattr(block, name)
    yield from vars(block).items()
    for cls in type(block).__mro__:
        yield from (item for item in vars(cls).items() if not item[0].startswith("__"))
