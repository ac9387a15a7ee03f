"""`Batches`: every row once an epoch, in an order that follows from the seed and the epoch."""

from itertools import chain

import numpy as np
import pytest

from blockdsl.data import Batches, epoch_of
from blockdsl.errors import DataError


def rows(batches, epoch=0, start=0):
    return [x.tolist() for (x,) in batches.epoch(epoch, start)]


def test_every_row_once_and_another_order_every_epoch():
    batches = Batches(np.arange(10), size=4)
    first, second = rows(batches), rows(batches, 1)
    assert [len(b) for b in first] == [4, 4, 2]
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(10))
    assert first != second
    assert rows(Batches(np.arange(10), size=4)) == first
    assert rows(Batches(np.arange(10), size=4, seed=1)) != first


def test_an_epoch_can_begin_in_the_middle():
    batches = Batches(np.arange(10), size=4)
    assert rows(batches, 3, start=2) == rows(batches, 3)[2:]
    assert list(epoch_of([1, 2, 3], 0, start=1)) == [2, 3]


def test_rows_of_several_arrays_stay_together():
    batches = Batches(np.arange(10), 10 * np.arange(10), size=3)
    assert all(np.array_equal(10 * a, b) for a, b in batches)


def test_named_arrays(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.arange(3), labels=np.ones(3))
    with np.load(tmp_path / "data.npz") as file:
        batches = Batches(file, size=2, shuffle=False)
    assert [sorted(b) for b in batches] == [["labels", "x"]] * 2


def test_drop_last():
    batches = Batches(np.arange(10), size=4, drop_last=True)
    assert len(batches) == 2 == len(rows(batches))


@pytest.mark.parametrize(
    ("arrays", "settings", "message"),
    [
        ((), {}, "arrays of one length above zero"),
        ((np.ones(3), np.ones(4)), {}, r"these have \[3, 4\]"),
        ((np.ones(0),), {}, r"these have \[0\]"),
        ((np.float32(1),), {}, r"these have \[None\]"),
        ((np.ones(3),), {"size": 0}, "A batch has at least one row; size=0"),
        ((np.ones(3),), {"seed": -1}, "a whole number of at least 0; seed=-1"),
        ((np.ones(3),), {"seed": None}, "a whole number of at least 0; seed=None"),
        ((np.ones(3),), {"size": 4, "drop_last": True}, "no whole batch of size=4 in 3 rows"),
    ],
)
def test_mistakes(arrays, settings, message):
    with pytest.raises(DataError, match=message):
        Batches(*arrays, **settings)
