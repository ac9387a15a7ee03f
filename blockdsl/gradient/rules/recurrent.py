"""Rules of RNN, GRU and LSTM.

The forward operator gives the hidden state of every step and nothing else that a gradient needs.
The rest is computed again: what does not depend on the recurrence in products over all steps at
once, the cell state of an LSTM in a `Scan` of element-wise work. The gradient runs backwards in a
second `Scan`, whose body is the gradient of one step, made by the engine from the step itself: so
every activation, peephole, clip and coupling of gates is differentiated in the same way. The
gradients of the weights are products over all steps again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from blockdsl.errors import GradientError
from blockdsl.gradient.cells import Gates, activations, gru_step, lstm_step, rnn_step
from blockdsl.gradient.engine import pull_back
from blockdsl.gradient.registry import vjp
from blockdsl.graph import current, op
from blockdsl.graph.control import scan
from blockdsl.graph.shapes import concat_shape, dims_of, positions
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
        return later if self.next_mask is None else op.Where(self.next_mask, later, first)

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
            live = [op.Where(inside, c, 0) for c in carried]
            before, made = step(live, rest, op.Where(inside, dy, 0))
            kept = [op.Where(inside, 0, c) for c in carried]
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


@vjp("RNN")
def rnn(
    g: Any,
    y: Any,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    sequence_lens: Value | None,
    initial_h: Value | None,
    *,
    activation_alpha: list[float] | None,
    activation_beta: list[float] | None,
    activations: list[str],
    clip: float | None,
    direction: str,
    hidden_size: int | None,
    layout: int,
) -> tuple[Value | None, ...]:
    """H' = f(x W^T + h R^T + b)        backwards through time, step by step"""
    setup = _Setup(
        g, y, x, w, r, b, sequence_lens, initial_h, direction, hidden_size, layout, 1
    )
    gates = setup.gates(activations, activation_alpha, activation_beta, clip, 1)
    parts = [_rnn_direction(d, f) for d, f in zip(setup.directions(), gates, strict=True)]
    return setup.joined(parts)


def _rnn_direction(d: Direction, gates: Gates) -> Cotangents:
    previous = d.previous()
    recurrent = previous @ d.r.transpose()
    x = d.shares(d.bias_w, d.bias_r)

    def step(carried: list[Value], rest: list[Value], dy: Value) -> Any:
        share, last = rest
        h = rnn_step(gates, share, last)
        (dshare,) = pull_back(current(), {h: carried[0] + dy}, [share])
        return [dshare @ d.r], [dshare]

    (dh0,), (dshare,) = d.backwards(step, [d.dh], [x, recurrent])
    db = _summed(dshare)
    return Cotangents(dshare @ d.w, _outer(dshare, d.x), _outer(dshare, previous), db, db, dh0)


@vjp("GRU")
def gru(
    g: Any,
    y: Any,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    sequence_lens: Value | None,
    initial_h: Value | None,
    *,
    activation_alpha: list[float] | None,
    activation_beta: list[float] | None,
    activations: list[str] | None,
    clip: float | None,
    direction: str,
    hidden_size: int | None,
    layout: int,
    linear_before_reset: int,
) -> tuple[Value | None, ...]:
    """H' = (1 - z) g(...) + z h        backwards through time, step by step"""
    setup = _Setup(
        g, y, x, w, r, b, sequence_lens, initial_h, direction, hidden_size, layout, 3
    )
    names = activations or ["Sigmoid", "Tanh"]
    gates = setup.gates(names, activation_alpha, activation_beta, clip, 2)
    one = _gru_direction if linear_before_reset else _gru_direction_reset_first
    return setup.joined([one(d, f) for d, f in zip(setup.directions(), gates, strict=True)])


def _gru_direction(d: Direction, gates: Gates) -> Cotangents:
    """Reset after the product: all shares of the last state come from one product."""
    previous = d.previous()
    recurrent = previous @ d.r.transpose()
    recurrent = recurrent if d.bias_r is None else recurrent + d.bias_r

    def step(carried: list[Value], rest: list[Value], dy: Value) -> Any:
        x, last, h = rest
        new = gru_step(gates, x, h, last, None)
        dx, dlast, dh = pull_back(current(), {new: carried[0] + dy}, [x, last, h])
        return [dh + dlast @ d.r], [dx, dlast]

    (dh0,), (dx, dlast) = d.backwards(step, [d.dh], [d.shares(d.bias_w), recurrent, previous])
    return Cotangents(
        dx @ d.w, _outer(dx, d.x), _outer(dlast, previous), _summed(dx), _summed(dlast), dh0
    )


def _gru_direction_reset_first(d: Direction, gates: Gates) -> Cotangents:
    """Reset before the product: gate h multiplies the reset state by its own weight."""
    previous, hidden = d.previous(), gates.hidden
    weight_zr, weight_h = d.r[: 2 * hidden], d.r[2 * hidden :]
    recurrent = previous @ weight_zr.transpose()
    x = d.shares(d.bias_w, d.bias_r)
    across = weight_h.transpose()

    def step(carried: list[Value], rest: list[Value], dy: Value) -> Any:
        share, last, h = rest
        new = gru_step(gates, share, h, last, across)
        dshare, dlast, dh = pull_back(current(), {new: carried[0] + dy}, [share, last, h])
        return [dh + dlast @ weight_zr], [dshare, dlast]

    (dh0,), (dshare, dlast) = d.backwards(step, [d.dh], [x, recurrent, previous])
    reset = gates.functions[0](
        gates.bounded(x[..., hidden : 2 * hidden] + recurrent[..., hidden : 2 * hidden])
    )
    dr = op.Concat(
        _outer(dlast, previous), _outer(dshare[..., 2 * hidden :], reset * previous), axis=0
    )
    db = _summed(dshare)
    return Cotangents(dshare @ d.w, _outer(dshare, d.x), dr, db, db, dh0)


@vjp("LSTM")
def lstm(
    g: Any,
    y: Any,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    sequence_lens: Value | None,
    initial_h: Value | None,
    initial_c: Value | None,
    p: Value | None,
    *,
    activation_alpha: list[float] | None,
    activation_beta: list[float] | None,
    activations: list[str] | None,
    clip: float | None,
    direction: str,
    hidden_size: int | None,
    input_forget: int,
    layout: int,
) -> tuple[Value | None, ...]:
    """C' = f c + i g(...), h' = o h(c')        backwards through time, step by step"""
    setup = _Setup(
        g, y, x, w, r, b, sequence_lens, initial_h, direction, hidden_size, layout, 4
    )
    names = activations or ["Sigmoid", "Tanh", "Tanh"]
    gates = setup.gates(names, activation_alpha, activation_beta, clip, 3)
    parts = []
    for i, (d, f) in enumerate(zip(setup.directions(), gates, strict=True)):
        c0 = setup.state(initial_c, i)
        peepholes = None if p is None else p[i]
        parts.append(_lstm_direction(d, f, c0, setup.last(2, i), peepholes, bool(input_forget)))
    common = setup.joined(parts)
    dc0 = setup.states([part.c0 for part in parts]) if initial_c is not None else None
    return (*common, dc0, _stacked([part.p for part in parts]) if p is not None else None)


def _lstm_direction(
    d: Direction, gates: Gates, c0: Value, dc: Value, peepholes: Value | None, coupled: bool
) -> Cotangents:
    previous = d.previous()
    gate_inputs = d.shares(d.bias_w, d.bias_r) + previous @ d.r.transpose()
    masks = [] if d.mask is None else [d.mask]

    def forward(states: list[Value], slices: list[Value]) -> Any:
        _, new = lstm_step(gates, slices[0], states[0], peepholes, coupled)
        new = op.Where(slices[1], new, states[0]) if masks else new
        return [new], [states[0]]

    _, (cells,) = scan(forward, [c0], [gate_inputs, *masks], reverse=d.reverse)
    extra = [] if peepholes is None else [peepholes]

    def step(carried: list[Value], rest: list[Value], dy: Value) -> Any:
        gate_input, c = rest
        h, new_c = lstm_step(gates, gate_input, c, peepholes, coupled)
        seeds: dict[str, Value] = {h: carried[0] + dy, new_c: carried[1]}
        dgate, dc_before, *dp = pull_back(current(), seeds, [gate_input, c, *extra])
        return [dgate @ d.r, dc_before], [dgate, *dp]

    (dh0, dc0), (dgate, *dp) = d.backwards(step, [d.dh, dc], [gate_inputs, cells])
    db = _summed(dgate)
    return Cotangents(
        dgate @ d.w,
        _outer(dgate, d.x),
        _outer(dgate, previous),
        db,
        db,
        dh0,
        dc0,
        dp[0].sum(0) if dp else None,
    )


class _Setup:
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
            self._mask = op.Less(steps.cast(np.int32), sequence_lens).unsqueeze(-1)
            self._next_mask = op.Less((steps + 1).cast(np.int32), sequence_lens).unsqueeze(-1)

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
        zeros = op.Expand(np.zeros((1, 1), self._x.dtype), shape)
        zeros.graph.annotate(zeros, TensorType(self._x.elem_type, (self._x.shape[1], self.hidden)))
        return zeros

    def last(self, output: int, i: int) -> Value:
        """The cotangent of the last state of a direction."""
        value: Value = self._g[output]
        return value[:, i] if self._batch_first else value[i]

    def states(self, values: Sequence[Value | None]) -> Value | None:
        """First states of all directions, in the layout of the node."""
        stacked = _stacked(values)
        return stacked.transpose(1, 0, 2) if self._batch_first else stacked

    def joined(self, parts: Sequence[Cotangents]) -> tuple[Value | None, ...]:
        """The cotangents of x, w, r, b, sequence_lens and initial_h."""
        dx = parts[0].x if len(parts) == 1 else parts[0].x + parts[1].x
        db = [op.Concat(part.bias_w, part.bias_r, axis=0) for part in parts]
        return (
            dx.transpose(1, 0, 2) if self._batch_first else dx,
            _stacked([part.w for part in parts]),
            _stacked([part.r for part in parts]),
            _stacked(db) if self._b is not None else None,
            None,
            self.states([part.h0 for part in parts]) if self._initial_h is not None else None,
        )


def _stacked(values: Sequence[Value | None]) -> Value:
    """Tensors of the directions along a new first axis."""
    rows = [value.unsqueeze(0) for value in values if value is not None]
    return rows[0] if len(rows) == 1 else op.Concat(*rows, axis=0)


def _outer(left: Value, right: Value) -> Value:
    """The sum over steps and batch of left^T right, in one product."""
    return op.Gemm(op.Flatten(left, axis=2), op.Flatten(right, axis=2), transA=1)


def _summed(value: Value) -> Value:
    """The sum over steps and batch."""
    return value.sum([0, 1])
