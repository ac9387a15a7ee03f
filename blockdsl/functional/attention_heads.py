"""Attention over heads, tensors of the shape (batch, heads, steps, size of a head)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from blockdsl.errors import GradientError
from blockdsl.functional.padding import Count
from blockdsl.graph import current, op
from blockdsl.graph.portable import where
from blockdsl.graph.shapes import dims_of, expand_like, positions, size_of
from blockdsl.graph.value import Value


@dataclass
class Scores:
    """What becomes of the products of queries and keys on their way to the softmax."""

    heads: int
    shared: int
    """The number of heads of keys and values, each shared by as many of the queries."""
    scale: float | None = None
    softcap: float = 0.0
    bias: Value | None = None
    hidden: Value | None = None
    """Whether a key is out of a query's sight, (steps, keys) or with axes before these."""
    sink: Value | float | None = None
    """A logit for looking nowhere: a number, or one of each head."""

    def shares(self, q: Value, k: Value) -> Value:
        """The share of every key in the result of every query."""
        scale: Value | float | None = self.scale
        if not scale:
            size = size_of(q, [-1])
            scale = 1 / (math.sqrt(size) if isinstance(size, float) else size.sqrt())
        scores = self._product(q * scale, k.transpose(0, 1, 3, 2))
        if self.softcap:
            scores = (scores * (1 / self.softcap)).tanh() * self.softcap
        if self.bias is not None:
            scores = scores + self.bias
        if self.hidden is not None:
            scores = where(self.hidden, -np.inf, scores)
        if self.sink is None:
            return scores.softmax()
        sink = self.sink
        column = sink.reshape(1, -1, 1, 1) if isinstance(sink, Value) else _number(scores, sink)
        columns = op.Concat(scores, expand_like(column, scores[..., :1]), axis=-1)
        return columns.softmax()[..., :-1]

    def attend(self, q: Value, k: Value, v: Value) -> Value:
        """The attention, (batch, steps, heads x size of a head)."""
        made = self._product(self.shares(q, k), v)
        return merge_heads(made)

    def _product(self, a: Value, b: Value) -> Value:
        """Products of the matrices of all heads; those that share one of `b` in one product."""
        if self.heads == self.shared:
            return a @ b
        rows = op.Reshape(a, [0, self.shared, -1, 0])
        return op.Reshape(rows @ b, [0, self.heads, -1, 0])


def _number(like: Value, number: float) -> Value:
    return current().add_constant(np.full((1, 1, 1, 1), number, like.dtype))


def split_heads(x: Value, heads: int) -> Value:
    """The heads of (batch, steps, heads x size)."""
    width = x.shape[-1]
    size = width // heads if isinstance(width, int) else -1  # -1 takes no empty batch
    return op.Reshape(x, [0, 0, heads, size]).transpose(0, 2, 1, 3)


def merge_heads(x: Value) -> Value:
    """The inverse of `split_heads`."""
    return joined(x.transpose(0, 2, 1, 3))


def joined(x: Value) -> Value:
    """The last two axes of `x` as one."""
    rows, columns = x.shape[-2:]
    width = rows * columns if isinstance(rows, int) and isinstance(columns, int) else -1
    return op.Reshape(x, [*[0] * (x.rank - 2), width])


def later(steps: Value, keys: Value, before: Count) -> Value:
    """Whether a key comes after a query, when some keys come before all queries."""
    rows = positions(dims_of(steps, [2])).unsqueeze(1)
    return positions(dims_of(keys, [2])) > rows + before


def padding(mask: Value | None, keys: Value, filtered: float) -> Value | None:
    """What is added to the scores where a mask tells keys apart: none of 0, or lengths."""
    if mask is None:
        return None
    if mask.rank == 1:
        places, batch = positions(dims_of(keys, [2])).cast(mask.elem_type), keys.shape[0]
        if mask.shape[0] == batch:
            seen = places < mask.unsqueeze(1)
        elif isinstance(batch, int) and mask.shape[0] == 2 * batch:
            ends, starts = mask[:batch].unsqueeze(1), mask[batch:].unsqueeze(1)
            seen = ~(places < starts) & (places < ends)
        else:
            raise GradientError(
                f"The mask {str(mask)!r} of {mask.type} may mean several things: give it the shape "
                f"(batch, keys), or the batch axis of {keys.type} the same size or name."
            )
    else:
        seen = mask > 0
    if seen.rank > 3:
        raise GradientError(
            f"The mask {str(mask)!r} is of rank 4, and such masks have no gradient."
        )
    return where(seen.unsqueeze(*range(1, 5 - seen.rank)), 0, _number(keys, filtered))


def rotated(x: Value, cos: Value, sin: Value, interleaved: int) -> Value:
    """Heads turned by angles of (batch, steps, half) or (steps, half)."""
    half = cos.shape[-1]
    assert isinstance(half, int)
    if cos.rank == 3:
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    turned, rest = x[..., : 2 * half], x[..., 2 * half :]
    if interleaved:
        first, second = turned[..., ::2], turned[..., 1::2]
    else:
        first, second = turned[..., :half], turned[..., half:]
    real, imaginary = first * cos - second * sin, first * sin + second * cos
    if interleaved:
        pairs = op.Concat(real.unsqueeze(-1), imaginary.unsqueeze(-1), axis=-1)
        made = [joined(pairs)]
    else:
        made = [real, imaginary]
    whole = x.shape[-1] == 2 * half
    return op.Concat(*made, *([] if whole else [rest]), axis=-1)
