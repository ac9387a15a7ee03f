"""All parameters in one flat buffer, and back.

The buffer has one element type, which holds every parameter exactly: float32, as in
onnxruntime-training, for float32, half precision and small integers; float64 as soon as a parameter
is float64 or an integer of 32 bits or more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from blockdsl.backend.engine import Array
from blockdsl.errors import StateError

_EXACT = 2**53  # up to here float64 holds every integer


def flat_dtype(dtypes: Iterable[np.dtype]) -> np.dtype:
    """The element type of the buffer of parameters of some types.

    Example:
        >>> flat_dtype([np.dtype("float16"), np.dtype("float32")])
        dtype('float32')
        >>> flat_dtype([np.dtype("float16"), np.dtype("float64")])
        dtype('float64')
    """
    exact = all(np.can_cast(dtype, np.float32, "safe") for dtype in dtypes)
    return np.dtype(np.float32 if exact else np.float64)


def flatten(arrays: Sequence[Array]) -> Array:
    """A copy of the arrays, one after the other.

    Raises:
        StateError: An integer is too large for a float64.
    """
    dtype = flat_dtype(array.dtype for array in arrays)
    flat = np.empty(sum(array.size for array in arrays), dtype)
    start = 0
    for array in arrays:
        if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size:
            largest = max(int(array.max()), -int(array.min()))
            if largest > _EXACT:
                raise StateError(
                    f"A flat buffer of parameters is {dtype}, which does not hold the integer "
                    f"{largest} exactly. Leave it out with `trainable_only=True`, or take the "
                    "parameters one by one: `CheckpointState.parameters`."
                )
        flat[start : start + array.size] = array.reshape(-1)
        start += array.size
    return flat


def unflatten(flat: Array, like: Sequence[tuple[np.dtype, tuple[int, ...]]]) -> list[Array]:
    """The parts of a buffer, as arrays of some types and shapes.

    Raises:
        StateError: A number in the place of an integer is none, or not one of its type.
    """
    parts, start = [], 0
    for dtype, shape in like:
        size = int(np.prod(shape, dtype=np.int64))
        part = flat[start : start + size]
        if dtype.kind in "iu":
            _check_integers(part, dtype, start)
        parts.append(part.astype(dtype, copy=False).reshape(shape))
        start += size
    return parts


def _check_integers(part: Array, dtype: np.dtype, start: int) -> None:
    limits = np.iinfo(dtype)
    low, high = max(limits.min, -_EXACT), min(limits.max, _EXACT)
    wrong = np.flatnonzero(~((part == np.rint(part)) & (low <= part) & (part <= high)))
    if wrong.size:
        raise StateError(
            f"Element {start + wrong[0]} of the buffer is {part[wrong[0]]}, which the {dtype} "
            "parameter there cannot hold. Leave integers out with `trainable_only=True`, or round "
            "them."
        )
