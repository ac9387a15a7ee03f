"""Batches of arrays, in an order that a resumed run repeats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from blockdsl.errors import DataError

Array = npt.NDArray[Any]
Batch = tuple[Array, ...] | Mapping[str, Array]
"""The inputs of a model, in its order or by name."""


class Batches:
    """Arrays cut into batches along their first axis.

    The order of an epoch follows from `seed` and the epoch's number alone, so that a run that is
    resumed in the middle of an epoch goes on with the batches it has not seen.

    Args:
        *arrays: Arrays of the same length, in the order of the model's inputs.
        size: How many rows a batch has; the last one may have fewer.
        shuffle: Whether every epoch has another order.
        seed: What the orders follow from.
        drop_last: Whether to leave out a last batch that is smaller, which a model with a fixed
            batch dimension cannot take.

    Raises:
        DataError: The arrays differ in length, or there are none.

    Example:
        >>> batches = Batches(np.arange(5), size=2, shuffle=False)
        >>> [x.tolist() for x, in batches.epoch(0)]
        [[0, 1], [2, 3], [4]]
        >>> len(batches)
        3
    """

    def __init__(
        self,
        *arrays: npt.ArrayLike,
        size: int = 32,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self._arrays = tuple(np.asarray(a) for a in arrays)
        lengths = [len(a) for a in self._arrays]
        if not lengths or len(set(lengths)) != 1 or lengths[0] == 0:
            raise DataError(
                f"Batches needs arrays of one length above zero; these have {lengths}: one row per "
                f"example in each."
            )
        if size < 1:
            raise DataError(f"A batch has at least one row; size={size}.")
        self._size, self._shuffle, self._seed, self._drop_last = size, shuffle, seed, drop_last

    def __len__(self) -> int:
        """How many batches an epoch has."""
        rows = len(self._arrays[0])
        return rows // self._size if self._drop_last else -(-rows // self._size)

    def __iter__(self) -> Iterator[tuple[Array, ...]]:
        """The batches of the first epoch."""
        return self.epoch(0)

    def epoch(self, number: int) -> Iterator[tuple[Array, ...]]:
        """The batches of an epoch."""
        order = np.arange(len(self._arrays[0]))
        if self._shuffle:
            np.random.default_rng([self._seed, number]).shuffle(order)
        for i in range(len(self)):
            rows = order[i * self._size : (i + 1) * self._size]
            yield tuple(a[rows] for a in self._arrays)


def epoch_of(data: Iterable[Batch], number: int) -> Iterator[Batch]:
    """The batches of an epoch of any data: `Batches`, a list of batches, a data loader.

    Raises:
        DataError: The data is a one-shot iterator, which has no second epoch.
    """
    if isinstance(data, Batches):
        return data.epoch(number)
    if iter(data) is data:
        raise DataError(
            "The data is an iterator, which can be read only once. Pass something that can be "
            "iterated again for every epoch: a list of batches, a data loader, or blockdsl.Batches."
        )
    return iter(data)


def in_order(batch: Batch, names: list[str]) -> tuple[Array, ...]:
    """The inputs of a model in its order.

    Args:
        batch: A tuple in that order, or a mapping by name; a single array if there is one input.
        names: The names of the inputs.

    Raises:
        DataError: Inputs are missing or unknown.
    """
    if isinstance(batch, Mapping):
        if set(batch) != set(names):
            raise DataError(
                f"The batch has {sorted(batch)}, and the model takes {names}: give exactly these."
            )
        return tuple(batch[name] for name in names)
    given = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    if len(given) != len(names):
        raise DataError(
            f"The batch has {len(given)} arrays, and the model takes {len(names)}: "
            f"{', '.join(names)}, in this order."
        )
    return given
