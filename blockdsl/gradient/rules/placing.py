"""The transpose of slicing: a tensor put into a larger one of zeros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from blockdsl.graph import op
from blockdsl.graph.portable import where
from blockdsl.graph.shapes import ShapeLike, concat_shape, dims_of, expand, reshape, typed_as
from blockdsl.graph.value import Value

Count = int | Value
"""A number, or an int64 vector of one element where it is computed when the graph runs."""

END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Cut:
    """Where the elements along an axis were taken from: `first`, `first + step`, and so on."""

    axis: int
    first: Count
    step: int = 1


def place(x: Value, like: Value, cuts: Sequence[Cut]) -> Value:
    """`x` at the places that it was cut from, zeros elsewhere.

    Args:
        x: The piece.
        like: The tensor that it was cut from.
        cuts: One for every axis that was cut; the other axes are as long in both.

    Returns:
        A tensor of the shape of `like`.
    """
    cuts = [_forward(x, cut) for cut in cuts]
    x = _reversed(x, [cut.axis for cut in cuts if cut.step < 0])
    before, after = [], []
    for cut in cuts:
        x, step = _spread(x, cut.axis, abs(cut.step)), abs(cut.step)
        length = length_of(like, cut.axis)
        first = smaller(cut.first, length)
        before.append(first)
        after.append(length - first - length_of(x, cut.axis))
    return typed_as(padded(x, [cut.axis for cut in cuts], before, after), like)
