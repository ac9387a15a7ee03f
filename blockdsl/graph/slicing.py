"""NumPy's basic indexing on values: integers, slices, `None` and `...`."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from blockdsl.errors import OpError
from blockdsl.graph.name import NameComparison
from blockdsl.graph.op import op, open_graph
from blockdsl.graph.value import Value

_END = np.iinfo(np.int64).max


def take(x: Value, key: Any) -> Value:
    """`x[key]`.

    Args:
        x: A tensor.
        key: Integers, slices (whose bounds may be integer tensors), `None` (a new axis), `...`, or
            an integer tensor or array in the place of one axis; a tuple of these.

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
    keys = _expanded(x, [_checked(x, k) for k in (key if isinstance(key, tuple) else (key,))])
    x = _sliced(x, [k for k in keys if k is not None])
    axis, new_axes = 0, []
    for k in keys:
        if k is None:
            new_axes.append(axis)
        elif not isinstance(k, slice):
            x = op.Gather(x, _index(x, axis, k), axis=axis)
            axis += _rank(k)
            continue
        axis += 1
    return x.unsqueeze(*new_axes) if new_axes else x


def _checked(x: Value, k: Any) -> Any:
    """An index as it is, a list as an array."""
    if k is None or k is ...:
        return k
    if isinstance(k, slice):
        bounds = all(isinstance(b, int | np.integer | Value | None) for b in (k.start, k.stop))
        if not (bounds and isinstance(k.step, int | np.integer | None)) or k.step == 0:
            raise OpError(
                f"{str(x)!r} cannot be indexed with {k!r}: the bounds of a slice are integers or "
                f"integer tensors, its step is an integer other than 0."
            )
        return k
    if isinstance(k, NameComparison):
        raise k.error()
    if isinstance(k, Value):
        open_graph(k)
        kind = "b" if k.elem_type == TensorProto.BOOL else k.dtype.kind
    else:
        k = k if isinstance(k, int | np.integer) else np.asarray(k)
        kind = "b" if isinstance(k, bool) else "i" if isinstance(k, int) else k.dtype.kind
    if kind == "b":
        raise OpError(
            f"{str(x)!r} cannot be indexed with truth values: write op.Where(condition, x, y), or "
            f"op.Compress(x, condition, axis=0) for a part of unknown size."
        )
    if kind not in "iu":
        raise OpError(f"{str(x)!r} cannot be indexed with {k!r}: use integers, slices, None, ...")
    return k


def _index(x: Value, axis: int, k: Any) -> Any:
    if isinstance(k, Value):
        return k
    indices, size = np.asarray(k, np.int64), x.shape[axis]
    if isinstance(size, int) and not np.all((-size <= indices) & (indices < size)):
        raise OpError(
            f"Index {indices.tolist()} is out of range for axis {axis} of {str(x)!r} ({x.type})."
        )
    return indices


def _rank(index: Any) -> int:
    return index.rank if isinstance(index, Value) else np.ndim(index)


def _expanded(x: Value, keys: list[Any]) -> list[Any]:
    """The keys with `...` written out as full slices."""
    if sum(k is ... for k in keys) > 1:
        raise OpError(f"{str(x)!r} is indexed with more than one `...`.")
    used = sum(k is not None and k is not ... for k in keys)
    if used > x.rank:
        raise OpError(f"{used} indices for {str(x)!r} of rank {x.rank} ({x.type}).")
    places = [k for k in keys if k is not None and k is not ... and not isinstance(k, slice)]
    if len(places) > 1 and any(map(_rank, places)):
        # NumPy takes them together, element by element, and may move axes: one at a time is clear.
        raise OpError(
            f"{str(x)!r} is indexed with a tensor or array beside another index: index in two "
            f"steps, x[i][:, j], or write op.GatherND(x, indices) for pairs of them."
        )
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
    steps = [1 if k.step is None else k.step for _, k in cut]
    starts = [_bound(k.start, 0 if s > 0 else _END) for (_, k), s in zip(cut, steps, strict=True)]
    ends = [_bound(k.stop, _END if s > 0 else -_END) for (_, k), s in zip(cut, steps, strict=True)]
    axes = [a for a, _ in cut]
    plain = all(step == 1 for step in steps)
    return op.Slice(
        x,
        starts=_vector(starts),
        ends=_vector(ends),
        axes=axes,
        steps=None if plain else steps,
    )


def _bound(given: Any, default: int) -> Any:
    return default if given is None else given


def _vector(bounds: list[Any]) -> Any:
    """Bounds one after the other: a tensor if one of them is computed."""
    if not any(isinstance(bound, Value) for bound in bounds):
        return bounds
    parts = [
        b.reshape(-1).cast(np.int64) if isinstance(b, Value) else np.array([b], np.int64)
        for b in bounds
    ]
    return parts[0] if len(parts) == 1 else op.Concat(*parts, axis=0)
