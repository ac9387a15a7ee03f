"""A recurrent operator taken apart into its directions, and their cotangents put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from blockdsl.errors import GradientError
from blockdsl.gradient.cells import Gates, activations
from blockdsl.graph import current, op
from blockdsl.graph.control import scan
from blockdsl.graph.portable import where
from blockdsl.graph.shapes import concat_shape, dims_of, expand, positions
from blockdsl.graph.tensor import TensorType
from blockdsl.graph.value import Value


@dataclass
class Direction:
    """What one direction of a recurrent operator works on, time first, and its cotangents."""

    x: Value
    """(steps, batch, inputs)"""
    w: Value
    """(gates x hidden, inputs)"""
    r: Value
    """(gates x hidden, hidden)"""
    bias_w: Value | None
    bias_r: Value | None
    h0: Value
    y: Value
    """The hidden states (steps, batch, hidden)."""
    mask: Value | None
    """(steps, batch, 1): whether a step lies inside its sequence."""
    next_mask: Value | None
    """The same of the step after it."""
    reverse: bool
    dy: Value
    dh: Value
    """The cotangent of the last hidden state."""

    def shares(self, *biases: Value | None) -> Value:
        """The input's share of the gates at every step, with biases."""
        share = self.x @ self.w.transpose()
        for bias in biases:
            share = share if bias is None else share + bias
        return share

    def previous(self) -> Value:
        """The hidden state before every step."""
        first = self.h0.unsqueeze(0)
        if not self.reverse:
            return op.Concat(first, self.y[:-1], axis=0)
        later = op.Concat(self.y[1:], first, axis=0)
        return later if self.next_mask is None else where(self.next_mask, later, first)

    def backwards(
        self,
        step: Callable[[list[Value], list[Value], Value], tuple[list[Value], list[Value]]],
        states: Sequence[Value],
        inputs: Sequence[Value],
    ) -> tuple[list[Value], list[Value]]:
        """Run the gradient of a step over all steps, the last one first.

        Args:
            step: (cotangents of the states, inputs of the step, cotangent of its output) ->
                (cotangents of the states before the step, outputs of the step).
            states: The cotangents of the last states.
            inputs: What the steps need, stacked.

        Returns:
            The cotangents of the first states, and the outputs of the steps, stacked. Where a step
            lies outside its sequence the former pass through and the latter are zero.
        """

        def masked(carried: list[Value], slices: list[Value]) -> Any:
            dy, rest = slices[0], slices[1:]
            if self.mask is None:
                return step(carried, rest, dy)
            inside = rest.pop()
            live = [where(inside, c, 0) for c in carried]
            before, made = step(live, rest, where(inside, dy, 0))
            kept = [where(inside, 0, c) for c in carried]
            return [b + k for b, k in zip(before, kept, strict=True)], made

        masks = [] if self.mask is None else [self.mask]
        return scan(masked, states, [self.dy, *inputs, *masks], reverse=not self.reverse)


@dataclass
class Cotangents:
    """The cotangents of one direction's inputs."""

    x: Value
    w: Value
    r: Value
    bias_w: Value
    bias_r: Value
    h0: Value
    c0: Value | None = None
    p: Value | None = None


class Recurrence:
    """A recurrent node taken apart into directions, and their cotangents put together."""

    def __init__(
        self,
        g: Any,
        y: Any,
        x: Value,
        w: Value,
        r: Value,
        b: Value | None,
        sequence_lens: Value | None,
        initial_h: Value | None,
        direction: str,
        hidden_size: int | None,
        layout: int,
        gates: int,
    ) -> None:
        self._g, self._y = g, y
        self._batch_first = bool(layout)
        self._x = x.transpose(1, 0, 2) if layout else x
        self._w, self._r, self._b = w, r, b
        self._initial_h = initial_h
        self._reverse = {"forward": [False], "reverse": [True]}.get(direction, [False, True])
        hidden = hidden_size or r.shape[-1]
        if not isinstance(hidden, int):
            raise GradientError(
                f"The hidden size of {str(r)!r} is not known: give the node its hidden_size."
            )
        self.hidden = hidden
        self._width = gates * hidden
        self._mask = self._next_mask = None
        if sequence_lens is not None:
            steps = positions(dims_of(self._x, [0])).unsqueeze(1)
            lengths = sequence_lens.cast(np.int64)
            self._mask = (steps < lengths).unsqueeze(-1)
            self._next_mask = (steps + 1 < lengths).unsqueeze(-1)

    def gates(
        self,
        names: Sequence[str],
        alphas: Sequence[float] | None,
        betas: Sequence[float] | None,
        clip: float | None,
        count: int,
    ) -> list[Gates]:
        """The activations of each direction."""
        wanted = len(self._reverse) * count
        names = [*names] * len(self._reverse) if len(names) < wanted else names
        found = activations(names, alphas, betas)
        return [
            Gates(found[i : i + count], self.hidden, clip or None) for i in range(0, wanted, count)
        ]

    def directions(self) -> list[Direction]:
        """What each direction works on."""
        return [self._direction(i, reverse) for i, reverse in enumerate(self._reverse)]

    def _direction(self, i: int, reverse: bool) -> Direction:
        bias = None if self._b is None else self._b[i]
        return Direction(
            x=self._x,
            w=self._w[i],
            r=self._r[i],
            bias_w=None if bias is None else bias[: self._width],
            bias_r=None if bias is None else bias[self._width :],
            h0=self.state(self._initial_h, i),
            y=self._steps(self._y[0], i),
            mask=self._mask,
            next_mask=self._next_mask,
            reverse=reverse,
            dy=self._steps(self._g[0], i),
            dh=self.last(1, i),
        )

    def _steps(self, value: Value, i: int) -> Value:
        """One direction of all hidden states, (steps, batch, hidden)."""
        return value[:, :, i].transpose(1, 0, 2) if self._batch_first else value[:, i]

    def state(self, given: Value | None, i: int) -> Value:
        """The first state of a direction, (batch, hidden), zeros if it is left out."""
        if given is not None:
            return given[:, i] if self._batch_first else given[i]
        shape = concat_shape(dims_of(self._x, [1]), [self.hidden])
        zeros = expand(current().add_constant(np.zeros((1, 1), self._x.dtype)), shape)
        zeros.graph.annotate(zeros, TensorType(self._x.elem_type, (self._x.shape[1], self.hidden)))
        return zeros

    def last(self, output: int, i: int) -> Value:
        """The cotangent of the last state of a direction."""
        value: Value = self._g[output]
        return value[:, i] if self._batch_first else value[i]

    def states(self, values: Sequence[Value | None]) -> Value | None:
        """First states of all directions, in the layout of the node."""
        together = stacked(values)
        return together.transpose(1, 0, 2) if self._batch_first else together

    def joined(self, parts: Sequence[Cotangents]) -> tuple[Value | None, ...]:
        """The cotangents of x, w, r, b, sequence_lens and initial_h."""
        dx = parts[0].x if len(parts) == 1 else parts[0].x + parts[1].x
        db = [op.Concat(part.bias_w, part.bias_r, axis=0) for part in parts]
        return (
            dx.transpose(1, 0, 2) if self._batch_first else dx,
            stacked([part.w for part in parts]),
            stacked([part.r for part in parts]),
            stacked(db) if self._b is not None else None,
            None,
            self.states([part.h0 for part in parts]) if self._initial_h is not None else None,
        )


def stacked(values: Sequence[Value | None]) -> Value:
    """Tensors of the directions along a new first axis."""
    rows = [value.unsqueeze(0) for value in values if value is not None]
    return rows[0] if len(rows) == 1 else op.Concat(*rows, axis=0)
