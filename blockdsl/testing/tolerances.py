"""How close is close enough, by element type: for values, and for gradients.

A gradient passes through more operations than the value it belongs to, so its tolerances are wider.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from blockdsl.errors import BlockError


@dataclass(frozen=True)
class Tolerance:
    """What two numbers may differ by: `atol + rtol * scale`."""

    rtol: float
    atol: float


FORWARD = {
    "float64": Tolerance(1e-12, 1e-12),
    "float32": Tolerance(1e-5, 1e-6),
    "float16": Tolerance(1e-2, 1e-3),
    "bfloat16": Tolerance(5e-2, 1e-2),
}
GRADIENT = {
    "float64": Tolerance(1e-6, 1e-8),
    "float32": Tolerance(1e-4, 2e-5),
    "float16": Tolerance(2e-2, 5e-3),
    "bfloat16": Tolerance(1e-1, 2e-2),
}


class MismatchError(BlockError, AssertionError):
    """Two things that must be equal are not."""


def tolerance(dtype: npt.DTypeLike, gradient: bool = False) -> Tolerance:
    """The tolerance of an element type; integers and booleans must agree exactly.

    Example:
        >>> tolerance("float32")
        Tolerance(rtol=1e-05, atol=1e-06)
        >>> tolerance("int64")
        Tolerance(rtol=0.0, atol=0.0)
    """
    table = GRADIENT if gradient else FORWARD
    return table.get(np.dtype(dtype).name, Tolerance(0.0, 0.0))


def assert_close(
    got: Any,
    expected: Any,
    *,
    dtype: npt.DTypeLike | None = None,
    gradient: bool = False,
    rtol: float | None = None,
    what: str = "the result",
) -> None:
    """Fail unless two arrays agree: same shape, and no element further off than is tolerated.

    Differences are measured against the largest finite entry of what is expected: an entry that
    is small because large ones cancelled cannot be more exact than those. NaN equals NaN, and an
    infinity equals itself.

    Args:
        got: An array.
        expected: What it should be.
        dtype: The element type that sets the tolerance; that of `got` by default.
        gradient: Use the tolerance of gradients.
        rtol: A relative tolerance of its own.
        what: What is compared, for the message.

    Raises:
        MismatchError: They do not agree.

    Example:
        >>> assert_close([1.0, 2.0], [1.0, 2.0 + 1e-13])
        >>> assert_close([1.0, 2.0], [1.0, 2.1], what="y")
        Traceback (most recent call last):
        ...
        blockdsl.testing.tolerances.MismatchError: y differs by up to 0.1 at (1,) ...
    """
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape:
        raise MismatchError(f"{what} has the shape {got.shape}; expected {expected.shape}.")
    if not got.size:
        return
    limits = tolerance(got.dtype if dtype is None else dtype, gradient)
    found, wanted = got.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = np.abs(found - wanted)
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    difference = np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))
    finite = np.abs(wanted[np.isfinite(wanted)])
    scale = float(finite.max()) if finite.size else 0.0
    allowed = limits.atol + (limits.rtol if rtol is None else rtol) * scale
    if difference.max() > allowed:
        at = tuple(int(i) for i in np.unravel_index(difference.argmax(), difference.shape))
        raise MismatchError(
            f"{what} differs by up to {difference.max():.3g} at {at} (allowed: {allowed:.3g}).\n"
            f"got:\n{got}\nexpected:\n{expected}"
        )
