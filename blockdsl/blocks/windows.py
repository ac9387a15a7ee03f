"""Sizes, steps and padding of windows that slide over the axes after batch and channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blockdsl.errors import OpError

Window = int | Sequence[int]
"""One number for all axes, or one for each."""

Padding = int | Sequence[int] | str
"""As `Window`; the beginnings of all axes and then the ends; or "same"."""


def per_axis(given: Window, axes: int, what: str) -> list[int]:
    """One number for each axis.

    Raises:
        OpError: There are more or fewer numbers than axes.

    Example:
        >>> per_axis(3, 2, "stride"), per_axis((1, 3), 2, "stride")
        ([3, 3], [1, 3])
    """
    if axes < 1:
        raise OpError("A window needs a tensor with axes after batch and channels: N, C, D1, ...")
    numbers = [given] * axes if isinstance(given, int) else list(given)
    if len(numbers) != axes:
        raise OpError(f"{what}={given!r} for {axes} axes: give one number, or {axes}.")
    return numbers


def padding(given: Padding, axes: int) -> dict[str, Any]:
    """Padding as the attributes `pads` or `auto_pad`.

    Raises:
        OpError: It is no padding, or has the wrong length.

    Example:
        >>> padding(1, 2), padding((1, 2), 2), padding("same", 2)
        ({'pads': [1, 1, 1, 1]}, {'pads': [1, 2, 1, 2]}, {'auto_pad': 'SAME_UPPER'})
    """
    if given == "same":
        return {"auto_pad": "SAME_UPPER"}
    if isinstance(given, str):
        raise OpError(f"There is no padding {given!r}: give numbers or 'same'.")
    if not isinstance(given, int) and len(given) == 2 * axes:
        return {"pads": list(given)}
    return {"pads": 2 * per_axis(given, axes, "padding")}
