"""Rules of RNN, GRU and LSTM.

The forward operator gives the hidden state of every step and nothing else that a gradient needs.
The rest is computed again: what does not depend on the recurrence in products over all steps at
once, the cell state of an LSTM in a `Scan` of element-wise work. The gradient runs backwards in a
second `Scan`, whose body is the gradient of one step, made by the engine from the step itself: so
every activation, peephole, clip and coupling of gates is differentiated in the same way. The
gradients of the weights are products over all steps again.
"""

from __future__ import annotations

from typing import Any

from blockdsl.gradient.cells import Gates, gru_step, lstm_step, rnn_step
from blockdsl.gradient.engine import pull_back
from blockdsl.gradient.recurrence import Cotangents, Direction, Recurrence, stacked
from blockdsl.gradient.registry import vjp
from blockdsl.graph import current, op
from blockdsl.graph.control import scan
from blockdsl.graph.portable import where
from blockdsl.graph.value import Value


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
    setup = Recurrence(
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
    db = summed(dshare)
    return Cotangents(dshare @ d.w, outer(dshare, d.x), outer(dshare, previous), db, db, dh0)


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
    setup = Recurrence(
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
        dx @ d.w, outer(dx, d.x), outer(dlast, previous), summed(dx), summed(dlast), dh0
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
        outer(dlast, previous), outer(dshare[..., 2 * hidden :], reset * previous), axis=0
    )
    db = summed(dshare)
    return Cotangents(dshare @ d.w, outer(dshare, d.x), dr, db, db, dh0)


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
    setup = Recurrence(
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
    return (*common, dc0, stacked([part.p for part in parts]) if p is not None else None)


def _lstm_direction(
    d: Direction, gates: Gates, c0: Value, dc: Value, peepholes: Value | None, coupled: bool
) -> Cotangents:
    previous = d.previous()
    gate_inputs = d.shares(d.bias_w, d.bias_r) + previous @ d.r.transpose()
    masks = [] if d.mask is None else [d.mask]

    def forward(states: list[Value], slices: list[Value]) -> Any:
        _, new = lstm_step(gates, slices[0], states[0], peepholes, coupled)
        new = where(slices[1], new, states[0]) if masks else new
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
    db = summed(dgate)
    return Cotangents(
        dgate @ d.w,
        outer(dgate, d.x),
        outer(dgate, previous),
        db,
        db,
        dh0,
        dc0,
        dp[0].sum(0) if dp else None,
    )


def outer(left: Value, right: Value) -> Value:
    """The sum over steps and batch of left^T right, in one product."""
    return op.Gemm(op.Flatten(left, axis=2), op.Flatten(right, axis=2), transA=1)


def summed(value: Value) -> Value:
    """The sum over steps and batch."""
    return value.sum([0, 1])
