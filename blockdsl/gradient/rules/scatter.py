"""Rules of operators that write to places given by indices."""

from __future__ import annotations

from blockdsl.functional.padding import length_of, numbers_to
from blockdsl.functional.scatter_sums import (
    add_into,
    depth_of,
    row_numbers,
    rows_of,
    take_elements,
    write,
)
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.portable import equal, where, widened
from blockdsl.graph.shapes import expand_like, reshape, reshape_like, zeros_like
from blockdsl.graph.value import Value


@vjp("ScatterElements")
def scatter_elements(
    g: Value,
    y: Value,
    data: Value,
    indices: Value,
    updates: Value,
    *,
    axis: int,
    reduction: str | None,
) -> tuple[Value, None, Value]:
    """y = data with updates        ddata = g where nothing was written        dupdates = g there

    Added updates leave ddata = g. A product, a maximum or a minimum passes g to what it is made of,
    the latter two evenly to all that attain it, as torch.scatter_reduce.
    """
    ddata, dupdates = _scattered(
        g, y, data, indices, updates, axis % data.rank, reduction or "none"
    )
    return ddata, None, dupdates


@vjp("ScatterND")
def scatter_nd(
    g: Value, y: Value, data: Value, indices: Value, updates: Value, *, reduction: str | None
) -> tuple[Value, None, Value]:
    """y = data with updates        ddata, dupdates as of ScatterElements"""
    if reduction in (None, "none", "add"):
        kept = g if reduction == "add" else op.ScatterND(g, indices, zeros_like(updates))
        return kept, None, op.GatherND(g, indices)
    g, y, rows, terms = (rows_of(x, data, depth_of(indices)) for x in (g, y, data, updates))
    numbers = row_numbers(data, indices, 0)
    if terms.rank == 2:
        numbers = expand_like(numbers.unsqueeze(1), terms)
    ddata, dupdates = _scattered(g, y, rows, numbers, terms, 0, reduction)
    return reshape_like(ddata, data), None, reshape_like(dupdates, updates)


@vjp("Scatter")
def scatter(
    g: Value, y: Value, data: Value, indices: Value, updates: Value, *, axis: int
) -> tuple[Value, None, Value]:
    """y = data with updates        ddata, dupdates as of ScatterElements, which replaced it"""
    ddata, dupdates = _scattered(g, y, data, indices, updates, axis % data.rank, "none")
    return ddata, None, dupdates


@vjp("TensorScatter")
def tensor_scatter(
    g: Value,
    y: Value,
    past_cache: Value,
    update: Value,
    write_indices: Value | None,
    *,
    axis: int,
    mode: str,
) -> tuple[Value, Value, None]:
    """y = cache with an update from an index on        dcache, dupdate as of ScatterElements"""
    axis %= past_cache.rank
    shape = [1] * update.rank
    shape[axis] = -1
    places = reshape(numbers_to(length_of(update, axis), g.graph), shape)
    if write_indices is not None:
        places = places + reshape(write_indices, [-1, *[1] * (update.rank - 1)])
    if mode == "circular":
        places = op.Mod(places, length_of(past_cache, axis))
    indices = expand_like(places, update)
    return *_scattered(g, y, past_cache, indices, update, axis, "none"), None


def _scattered(
    g: Value, y: Value, data: Value, indices: Value, updates: Value, axis: int, reduction: str
) -> tuple[Value, Value]:
    def read(x: Value) -> Value:
        return take_elements(x, indices, axis)

    def count(at_data: Value, at_updates: Value) -> Value:
        ones, terms = (widened(x.cast(g.elem_type)) for x in (at_data, at_updates))
        return add_into(ones, indices, terms, axis)

    if reduction == "none":
        return write(g, indices, zeros_like(updates), axis), read(g)
    if reduction == "add":
        return g, read(g)
    if reduction == "mul":
        at_data, at_updates = equal(data, 0), equal(updates, 0)
        rest, factors = where(at_data, 1, data), where(at_updates, 1, updates)
        product = op.ScatterElements(rest, indices, factors, axis=axis, reduction="mul")
        zeros = count(at_data, at_updates)
        ddata = where(_are_all(zeros, at_data), g * product / rest, 0)
        return ddata, where(_are_all(read(zeros), at_updates), read(g * product) / factors, 0)
    kept, written = equal(data, y), equal(updates, read(y))
    share = g / count(kept, written).cast(g.elem_type)
    return where(kept, share, 0), where(written, read(share), 0)


def _are_all(zeros: Value, own: Value) -> Value:
    """Whether no other factor is zero, given how many are and whether this one is."""
    return equal(zeros, own.cast(zeros.elem_type))
