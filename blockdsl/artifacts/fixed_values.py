"""Tests of values that nobody trains: masks, sinusoids, grids, filter banks.

They look at a few thousand values at most, whatever a tensor weighs.
"""

from __future__ import annotations

import numpy as np

_LARGEST = 2**22
"""Elements up to which all of a tensor is looked at."""
_COLUMNS = 2048
_ROWS = 24
_FILL = -1e2
"""Masks fill with -100, -1e4, -1e9 or the smallest float what softmax is to leave out."""


def is_mask(array: np.ndarray) -> bool:
    """Whether a tensor has infinities, or is made of zeros and one huge negative fill."""
    if not 0 < array.size <= _LARGEST:
        return False
    values = array.astype(np.float64)
    if not np.isfinite(values).all():
        return True
    lowest = values.min()
    return bool(lowest <= _FILL and np.isin(values, (0, lowest)).all())


def is_zero_one(array: np.ndarray) -> bool:
    """Whether a tensor is made of zeros and ones, of which it has both."""
    if not 1 < array.size <= _LARGEST:
        return False
    return bool(np.isin(array, (0, 1)).all() and array.min() != array.max())


def is_positive(array: np.ndarray) -> bool:
    """Whether all elements are greater than zero."""
    return 0 < array.size <= _LARGEST and bool((array > 0).all())


def is_constant(array: np.ndarray, *values: float) -> bool:
    """Whether all elements are the same number, and that one of `values` if any are given."""
    if not 0 < array.size <= _LARGEST:
        return False
    first = array.reshape(-1)[0]
    return bool((array == first).all()) and (not values or float(first) in values)


def is_regular(array: np.ndarray, unit: float = 1.0) -> bool:
    """Whether all elements are multiples of a unit."""
    if not 0 < array.size <= _LARGEST:
        return False
    counts = array.astype(np.float64) / unit
    return bool((counts == np.round(counts)).all())


def is_sinusoid(array: np.ndarray, least: int = 6) -> bool:
    """Whether a table holds sinusoids of several frequencies along one of its axes.

    A sinusoid, also one with an offset, has differences that solve d[k-1] + d[k+1] = c d[k].
    """
    return any(
        _is_wave(columns) and _frequencies(columns) > 1 for columns in _columns(array, least)
    )


def is_wave(array: np.ndarray, least: int = 6) -> bool:
    """Whether a table holds sinusoids along one of its axes, be it of one frequency."""
    return any(map(_is_wave, _columns(array, least)))


def is_grid(array: np.ndarray, least: int = 5) -> bool:
    """Whether a tensor grows evenly along one of its axes: coordinates."""
    for columns in _columns(array, least):
        steps = np.diff(columns, axis=0)
        largest = np.abs(steps).max()
        if largest and np.abs(np.diff(steps, axis=0)).max() <= 1e-3 * largest:
            return True
    return False


def is_mesh(array: np.ndarray) -> bool:
    """Whether the channels of a tensor, its last axis, are coordinates along different axes."""
    values = array.squeeze()
    channels = values.shape[-1] if values.ndim > 2 else 0
    if not 2 <= channels < values.ndim or values.size > _LARGEST:
        return False
    axes = {_only_axis(values[..., channel]) for channel in range(channels)}
    return len(axes - {None}) == channels


def _only_axis(values: np.ndarray) -> int | None:
    """Return the axis along which a tensor grows, or falls, if it is constant along the others."""
    varying = [
        axis for axis, n in enumerate(values.shape) if n > 1 and np.diff(values, axis=axis).any()
    ]
    if len(varying) != 1:
        return None
    steps = np.diff(np.moveaxis(values, varying[0], 0), axis=0)
    return varying[0] if (steps > 0).all() or (steps < 0).all() else None


def is_filter_bank(array: np.ndarray) -> bool:
    """Whether a matrix holds non-negative bands, mel filters say, or windowed Fourier pairs."""
    matrix = array.squeeze()
    if matrix.ndim != 2 or not 64 <= matrix.size <= _LARGEST or min(matrix.shape) < 8:
        return False
    return _has_bands(matrix) or _has_bands(matrix.T) or _is_quadrature(matrix[:, :64])


def _has_bands(matrix: np.ndarray) -> bool:
    """Whether every row has one run of positive values among zeros, most of several."""
    if matrix[:8].min() < 0 or matrix.min() < 0:
        return False
    inside = matrix > 0
    if inside.mean() > 0.5:
        return False
    edges = np.abs(np.diff(np.pad(inside.astype(np.int8), ((0, 0), (1, 1))), axis=1)).sum(axis=1)
    return bool((edges <= 2).all() and (inside.sum(axis=1) > 1).mean() > 0.5)


def _is_quadrature(matrix: np.ndarray) -> bool:
    """Whether the squares of cosine and sine rows sum to the same window for every frequency."""
    half, odd = divmod(len(matrix), 2)
    if odd or half < 4:
        return False
    squares = matrix.astype(np.float64) ** 2
    power = squares[:half] + squares[half:]
    spread = np.abs(power[1:-1] - power[1]).max()
    return bool(power.max() > 0 and spread <= 1e-3 * power.max())


def _columns(array: np.ndarray, least: int) -> list[np.ndarray]:
    """Return the last rows along each axis that is long enough, some of their columns."""
    moved = []
    for axis, length in enumerate(array.shape):
        if length >= least:
            rows = np.moveaxis(array, axis, 0)[-_ROWS:]
            columns = rows.reshape(len(rows), -1)
            stride = -(-columns.shape[1] // _COLUMNS)
            moved.append(columns[:, ::stride].astype(np.float64))
    return moved


def _is_wave(columns: np.ndarray) -> bool:
    """Whether the columns that change are sinusoids, or straight lines."""
    steps = np.diff(columns, axis=0)
    strong = _strong(steps)
    if not strong.any() or strong.mean() < 0.1:
        return False
    steps = steps[:, strong] / np.abs(steps[:, strong]).max(axis=0)
    around, middle = steps[:-2] + steps[2:], steps[1:-1]
    residue = np.abs(around[:-1] * middle[1:] - around[1:] * middle[:-1]).max()
    # A jump between rows that are equal otherwise is no wave.
    return bool(residue <= 0.02 and np.median(np.abs(middle), axis=0).min() > 0.05)


def _frequencies(columns: np.ndarray) -> int:
    """Count the frequencies among columns of sinusoids."""
    steps = np.diff(columns, axis=0)
    steps = steps[:, _strong(steps)]
    around, middle = steps[:-2] + steps[2:], steps[1:-1]
    best, picked = np.abs(middle).argmax(axis=0), np.arange(middle.shape[1])
    return len(np.unique(np.round(around[best, picked] / middle[best, picked], 1)))


def _strong(steps: np.ndarray) -> np.ndarray:
    """Return which columns change by a good part of what the one that changes most does."""
    sizes = np.abs(steps).max(axis=0)
    largest = sizes.max()
    found: np.ndarray = (sizes > 0.05 * largest) & np.isfinite(largest)
    return found
