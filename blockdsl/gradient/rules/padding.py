"""The rule of Pad."""

from __future__ import annotations

from typing import NamedTuple

from blockdsl.functional.padding import END, Count, Cut, length_of, padded, place
from blockdsl.functional.scatter_sums import add_at, positions_in
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.value import Value


class Margin(NamedTuple):
    """How many elements a node adds before and after those of an axis."""

    axis: int
    before: int
    after: int


@vjp("Pad")
def pad(
    g: Value,
    y: Value,
    x: Value,
    pads: Value,
    constant_value: Value | None,
    axes: Value | None,
    *,
    mode: str,
) -> tuple[Value | None, ...]:
    """y = x with margins        dx = g without them, plus g of the margins at what they repeat"""
    margins = _constant_margins(x, pads, axes)
    if mode == "constant":
        if margins is None:
            dx = op.Pad(g, op.Neg(pads), axes=axes, mode=mode)
        else:
            dx = _inside(g, margins)
        filled = None if constant_value is None else (g - op.Pad(dx, pads, axes=axes)).sum()
        return dx, None, filled, None
    if margins is None or not all(_is_plain(x, m, mode) for m in margins):
        read = op.Pad(positions_in(x), pads, axes=axes, mode=mode)
        return add_at(g, read, x), None, None, None
    for margin in margins:
        g = _folded(g, margin, mode)
    return g, None, None, None


def _constant_margins(x: Value, pads: Value, axes: Value | None) -> list[Margin] | None:
    """The margins that a node names, without those of no width; `None` if they are computed."""
    if pads.constant is None or (axes is not None and axes.constant is None):
        return None
    named = range(x.rank) if axes is None or axes.constant is None else axes.constant
    widths = pads.constant.reshape(2, -1).tolist()
    margins = [Margin(int(a) % x.rank, *w) for a, *w in zip(named, *widths, strict=True)]
    return [m for m in margins if m.before or m.after]


def _inside(g: Value, margins: list[Margin]) -> Value:
    """What lies between the margins; a negative one is filled up with zeros."""
    axes = [m.axis for m in margins]
    if not axes:
        return g
    if any(m.before < 0 or m.after < 0 for m in margins):
        return padded(g, axes, [-m.before for m in margins], [-m.after for m in margins])
    starts, ends = [m.before for m in margins], [-m.after or END for m in margins]
    return op.Slice(g, starts=starts, ends=ends, axes=axes)


def _is_plain(x: Value, margin: Margin, mode: str) -> bool:
    """Whether every element of the axis is repeated once at most by each margin."""
    length = x.shape[margin.axis]
    widest = max(margin.before, margin.after)
    fits = mode == "edge" or not isinstance(length, int) or widest + (mode == "reflect") <= length
    return min(margin.before, margin.after) >= 0 and fits


def _folded(g: Value, margin: Margin, mode: str) -> Value:
    """The inside of an axis, with its margins added to what they repeat."""
    axis, before, after = margin
    inside = _inside(g, [margin])
    first, last = _origins(length_of(inside, axis), margin, mode)
    dx = inside
    if before:
        part = op.Slice(g, starts=[0], ends=[before], axes=[axis])
        dx = dx + place(part.sum(axis, True) if mode == "edge" else part, inside, [first])
    if after:
        part = op.Slice(g, starts=[-after], ends=[END], axes=[axis])
        dx = dx + place(part.sum(axis, True) if mode == "edge" else part, inside, [last])
    return dx


def _origins(length: Count, margin: Margin, mode: str) -> tuple[Cut, Cut]:
    """Which elements the margin before and the margin after repeat."""
    axis, before, _ = margin
    if mode == "reflect":
        return Cut(axis, before, -1), Cut(axis, length - 2, -1)
    if mode == "edge":
        return Cut(axis, 0), Cut(axis, length - 1)
    return Cut(axis, length - before), Cut(axis, 0)  # wrap
