"""NumPy's basic indexing on values: integers, slices, `None` and `...`."""

from __future__ import annotations

from typing import Any

import numpy as np

from blockdsl.errors import OpError
from blockdsl.graph.op import op
from blockdsl.graph.value import Value

_END = np.iinfo(np.int64).max


def take(x: Value, key: Any) -> Value:
    """`x[key]`.

    Args:
        x: A tensor.
        key: Integers, slices, `None` (a new axis), `...`, or an integer tensor or array in the
            place of one axis; a tuple of these.

    Returns:
        The part of the tensor.

    Raises:
        OpError: There are more indices than axes, or one is of another kind.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     x = blockdsl.input("x", shape=("batch", 5, 7))
        ...     print(x[:, 0].shape, x[..., 1:3].shape, x[:, None].shape)
        ('batch', 7) ('batch', 5, 2) ('batch', 1, 5, 7)
    """
    keys = _expanded(x, key if isinstance(key, tuple) else (key,))
    x = _sliced(x, [k for k in keys if k is not None])
    axis, new_axes = 0, []
    for k in keys:
        if k is None:
            new_axes.append(axis)
        elif isinstance(k, slice):
            pass
        else:
            x = op.Gather(x, _index(x, axis, k), axis=axis)
            axis += _rank(k)
            continue
        axis += 1
    return x.unsqueeze(*new_axes) if new_axes else x


def _index(x: Value, axis: int, k: Any) -> Any:
    if isinstance(k, Value):
        return k
    indices, size = np.asarray(k, np.int64), x.shape[axis]
    if isinstance(size, int) and not np.all((-size <= indices) & (indices < size)):
        raise OpError(f"Index {k} is out of range for axis {axis} of {str(x)!r} ({x.type}).")
    return indices


def _rank(index: Any) -> int:
    return index.rank if isinstance(index, Value) else np.ndim(index)


def _expanded(x: Value, keys: tuple[Any, ...]) -> list[Any]:
    """The keys with `...` written out as full slices."""
    for k in keys:
        known = isinstance(k, int | np.integer | slice | Value | np.ndarray | list)
        if not (known or k is None or k is ...) or (isinstance(k, slice) and k.step == 0):
            raise OpError(
                f"{str(x)!r} cannot be indexed with {k!r}: use integers, slices, None, ..."
            )
    if sum(k is ... for k in keys) > 1:
        raise OpError(f"{str(x)!r} is indexed with more than one `...`.")
    used = sum(k is not None and k is not ... for k in keys)
    if used > x.rank:
        raise OpError(f"{used} indices for {str(x)!r} of rank {x.rank} ({x.type}).")
    fill = [slice(None)] * (x.rank - used)
    if not any(k is ... for k in keys):
        return [*keys, *fill]
    at = next(i for i, k in enumerate(keys) if k is ...)
    return [*keys[:at], *fill, *keys[at + 1 :]]


def _sliced(x: Value, keys: list[Any]) -> Value:
    """All slices in one `Slice` node."""
    cut = [(a, k) for a, k in enumerate(keys) if isinstance(k, slice) and k != slice(None)]
    if not cut:
        return x
    steps = [k.step or 1 for _, k in cut]
    starts = [_bound(k.start, 0 if s > 0 else _END) for (_, k), s in zip(cut, steps, strict=True)]
    ends = [_bound(k.stop, _END if s > 0 else -_END) for (_, k), s in zip(cut, steps, strict=True)]
    axes = [a for a, _ in cut]
    plain = all(step == 1 for step in steps)
    return op.Slice(x, starts=starts, ends=ends, axes=axes, steps=None if plain else steps)


def _bound(given: int | None, default: int) -> int:
    return default if given is None else given
