"""Batches of arrays, in an order that a resumed run repeats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from blockdsl.errors import DataError, is_number, near

Array = npt.NDArray[Any]
Batch = tuple[Array, ...] | Mapping[str, Array]
"""The inputs of a model, in its order or by name."""


class Batches:
    """Arrays cut into batches along their first axis.

    The order of an epoch follows from `seed` and the epoch's number alone, so that a run that is
    resumed in the middle of an epoch goes on with the batches it has not seen.

    Args:
        *arrays: Arrays of the same length, in the order of the model's inputs; or one mapping of
            them by the names of the inputs, such as `numpy.load` gives for an `.npz` file.
        size: How many rows a batch has; the last one may have fewer.
        shuffle: Whether every epoch has another order.
        seed: What the orders follow from.
        drop_last: Whether to leave out a last batch that is smaller, which a model with a fixed
            batch dimension cannot take.

    Raises:
        DataError: The arrays differ in length, or there is no batch in them.

    Example:
        >>> batches = Batches(np.arange(5), size=2, shuffle=False)
        >>> [x.tolist() for x, in batches.epoch(0)]
        [[0, 1], [2, 3], [4]]
        >>> len(batches)
        3
        >>> next(iter(Batches({"x": np.arange(5)}, size=2, shuffle=False)))
        {'x': array([0, 1])}
    """

    def __init__(
        self,
        *arrays: npt.ArrayLike | Mapping[str, npt.ArrayLike],
        size: int = 32,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self._names: list[str] | None = None
        if len(arrays) == 1 and isinstance(arrays[0], Mapping):
            self._names, arrays = list(arrays[0]), tuple(arrays[0].values())
        try:
            self._arrays = tuple(np.asarray(a) for a in arrays)
        except ValueError as error:
            raise DataError(f"Batches needs arrays, with rows of one length: {error}") from error
        lengths = [len(a) if a.ndim else None for a in self._arrays]
        if not lengths or len(set(lengths)) != 1 or not lengths[0]:
            raise DataError(
                f"Batches needs arrays of one length above zero; these have {lengths}: one row per "
                f"example in each."
            )
        if not isinstance(size, int | np.integer) or size < 1:
            raise DataError(f"A batch has at least one row; size={size!r}.")
        if not is_number(seed, whole=True) or seed < 0:
            raise DataError(f"A seed is a whole number of at least 0; seed={seed!r}.")
        self._size, self._shuffle, self._seed, self._drop_last = size, shuffle, seed, drop_last
        if not len(self):
            raise DataError(
                f"There is no whole batch of size={size} in {lengths[0]} rows, and drop_last "
                f"leaves out the smaller one."
            )

    def __len__(self) -> int:
        """How many batches an epoch has."""
        rows = len(self._arrays[0])
        return rows // self._size if self._drop_last else -(-rows // self._size)

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the first epoch."""
        return self.epoch(0)

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from the one numbered `start` on."""
        order = np.arange(len(self._arrays[0]))
        if self._shuffle:
            np.random.default_rng([self._seed, number]).shuffle(order)
        for i in range(start, len(self)):
            rows = order[i * self._size : (i + 1) * self._size]
            batch = tuple(a[rows] for a in self._arrays)
            yield batch if self._names is None else dict(zip(self._names, batch, strict=True))


def check_repeatable(data: Any, argument: str) -> None:
    """Check that data can be gone through in every epoch.

    Raises:
        DataError: It is a one-shot iterator, a single batch, or nothing that gives batches.
    """
    if isinstance(data, Mapping):
        raise DataError(
            f"{argument} is a mapping, which is a single batch. Write blockdsl.Batches({argument}, "
            f"size=...) to cut it into batches, or [{argument}] for that one batch."
        )
    if not isinstance(data, Iterable):
        raise DataError(
            f"{argument} is of type {type(data).__name__}, which gives no batches. Pass "
            f"blockdsl.Batches, a list of batches or a data loader."
        )
    if iter(data) is data:
        raise DataError(
            f"{argument} is an iterator, which can be read only once. Pass something that can be "
            f"iterated again for every epoch: a list of batches, a data loader, or "
            f"blockdsl.Batches."
        )


def epoch_of(data: Iterable[Batch], number: int, start: int = 0) -> Iterator[Batch]:
    """The batches of an epoch of any data, from the one numbered `start` on."""
    if isinstance(data, Batches):
        return data.epoch(number, start)
    return islice(data, start, None)


def in_order(batch: Batch, names: list[str]) -> tuple[Array, ...]:
    """The inputs of a model in its order.

    Args:
        batch: A tuple in that order, or a mapping by name, which may have more; a single array if
            there is one input.
        names: The names of the inputs.

    Raises:
        DataError: Inputs are missing or too many.

    Example:
        >>> in_order({"target": 1, "x": 0}, ["x", "target"])
        (0, 1)
    """
    if isinstance(batch, Mapping):
        missing = [name for name in names if name not in batch]
        if missing:
            raise DataError(
                f"The batch lacks {', '.join(map(repr, missing))}: the model takes "
                f"{', '.join(names)}. {near(missing[0], batch)}"
            )
        return tuple(batch[name] for name in names)
    given = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    if len(given) != len(names):
        raise DataError(
            f"The batch has {len(given)} array{'s' * (len(given) != 1)}, and the model takes "
            f"{len(names)}: {', '.join(names)}, in this order."
        )
    return given
