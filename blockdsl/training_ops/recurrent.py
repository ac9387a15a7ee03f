"""LSTM and GRU that keep what their gradients need, and these gradients.

What holds for the kernels holds here: one direction, the standard activations, no lengths of
sequences, no peepholes, no clipping.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from blockdsl.errors import GradientError
from blockdsl.gradient.engine import pull_back
from blockdsl.gradient.recurrence import Direction, Recurrence
from blockdsl.gradient.rules.recurrent import gru, outer, summed
from blockdsl.graph import current, op
from blockdsl.graph.control import scan
from blockdsl.graph.shapes import zeros_like
from blockdsl.graph.value import Value
from blockdsl.training_ops.registry import training_operator

Names = Sequence[bytes | str] | None
Numbers = Sequence[float] | None


@training_operator("LSTMTraining")
def lstm_training(
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    sequence_lens: Value | None,
    h0: Value | None,
    c0: Value | None,
    p: Value | None,
    *,
    activation_alpha: Numbers = None,
    activation_beta: Numbers = None,
    activations: Names = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Value, ...]:
    """LSTM, with the cell states of all steps, and the gates i, o, f, c of all steps"""
    _check(
        ("sigmoid", "tanh", "tanh"),
        activations,
        sequence_lens=sequence_lens,
        P=p,
        clip=clip,
        direction=direction != "forward",
        input_forget=input_forget,
        layout=layout,
    )
    y, last_h, last_c = op.LSTM(x, w, r, b, None, h0, c0, hidden_size=hidden_size, outputs=3)
    d, hidden = _direction([y, last_h], y, x, w, r, b, h0, hidden_size, 4)
    shares = d.shares(d.bias_w, d.bias_r) + d.previous() @ d.r.transpose()
    gates = op.Concat(shares[..., : 3 * hidden].sigmoid(), shares[..., 3 * hidden :].tanh(), axis=2)

    def step(states: list[Value], slices: list[Value]) -> Any:
        i, _, f, c = _split(slices[0], hidden)
        new = f * states[0] + i * c
        return [new], [new]

    first = zeros_like(y[0][0]) if c0 is None else c0[0]
    _, (cells,) = scan(step, [first], [gates])
    return y, last_h, last_c, cells.unsqueeze(1), gates.unsqueeze(1)


@training_operator("LSTMGrad")
def lstm_grad(
    x: Value,
    w: Value,
    r: Value,
    sequence_lens: Value | None,
    h0: Value | None,
    c0: Value | None,
    y: Value,
    all_cells: Value,
    all_gates: Value,
    dy: Value | None,
    dh: Value | None,
    dc: Value | None,
    *,
    activation_alpha: Numbers = None,
    activation_beta: Numbers = None,
    activations: Names = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Value, ...]:
    """C' = f c + i g, h' = o tanh(c')        backwards through time, from the gates of each step"""
    nothing = zeros_like(y[0])
    cotangents = [zeros_like(y) if dy is None else dy, nothing if dh is None else dh]
    d, hidden = _direction(cotangents, y, x, w, r, None, h0, hidden_size, 4)
    gates, cells = all_gates[:, 0], all_cells[:, 0]
    before = (nothing if c0 is None else c0)[0].unsqueeze(0)
    before = op.Concat(before, cells[:-1], axis=0)
    sigmoids, tanhs = gates[..., : 3 * hidden], gates[..., 3 * hidden :]
    slopes = op.Concat(sigmoids * (1 - sigmoids), 1 - tanhs * tanhs, axis=2)

    def step(carried: list[Value], rest: list[Value], dy: Value) -> Any:
        gate, slope, cell = rest
        i, o, f, c = _split(gate, hidden)
        new = f * cell + i * c
        seeds: dict[str, Value] = {o * new.tanh(): carried[0] + dy, new: carried[1]}
        dgate, dcell = pull_back(current(), seeds, [gate, cell])
        return [(dgate * slope) @ d.r, dcell], [dgate * slope]

    last = (nothing if dc is None else dc)[0]
    (dh0, dc0), (dshare,) = d.backwards(step, [d.dh, last], [gates, slopes, before])
    db = summed(dshare)
    stacked = (outer(dshare, d.x), outer(dshare, d.previous()), op.Concat(db, db, axis=0))
    dw, dr, db, dh0, dc0 = (v.unsqueeze(0) for v in (*stacked, dh0, dc0))
    return dshare @ d.w, dw, dr, db, dh0, dc0


@training_operator("GRUTraining")
def gru_training(
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    sequence_lens: Value | None,
    h0: Value | None,
    *,
    activation_alpha: Numbers = None,
    activation_beta: Numbers = None,
    activations: Names = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Value, ...]:
    """GRU, with the gates z, r, h of all steps"""
    _check(
        ("sigmoid", "tanh"),
        activations,
        sequence_lens=sequence_lens,
        clip=clip,
        direction=direction != "forward",
        layout=layout,
    )
    y, last_h = op.GRU(
        x,
        w,
        r,
        b,
        None,
        h0,
        hidden_size=hidden_size,
        linear_before_reset=linear_before_reset,
        outputs=2,
    )
    d, hidden = _direction([y, last_h], y, x, w, r, b, h0, hidden_size, 3)
    two, previous = 2 * hidden, d.previous()
    if linear_before_reset:
        share, recurrent = d.shares(d.bias_w), previous @ d.r.transpose()
        recurrent = recurrent if d.bias_r is None else recurrent + d.bias_r
        zr = (share[..., :two] + recurrent[..., :two]).sigmoid()
        h = (share[..., two:] + zr[..., hidden:] * recurrent[..., two:]).tanh()
    else:
        share = d.shares(d.bias_w, d.bias_r)
        zr = (share[..., :two] + previous @ d.r[:two].transpose()).sigmoid()
        reset = zr[..., hidden:] * previous
        h = (share[..., two:] + reset @ d.r[two:].transpose()).tanh()
    return y, last_h, op.Concat(zr, h, axis=2).unsqueeze(1)


@training_operator("GRUGrad")
def gru_grad(
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    sequence_lens: Value | None,
    h0: Value | None,
    y: Value,
    zrh: Value,
    dy: Value | None,
    dh: Value | None,
    *,
    activation_alpha: Numbers = None,
    activation_beta: Numbers = None,
    activations: Names = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Value | None, ...]:
    """H' = (1 - z) g(...) + z h        backwards through time, as the gradient of GRU"""
    nothing = zeros_like(y[0])
    dx, dw, dr, db, _, dh0 = gru(
        [zeros_like(y) if dy is None else dy, nothing if dh is None else dh],
        [y],
        x,
        w,
        r,
        b,
        None,
        h0,
        activation_alpha=None,
        activation_beta=None,
        activations=None,
        clip=None,
        direction=direction,
        hidden_size=hidden_size,
        layout=0,
        linear_before_reset=linear_before_reset,
    )
    return dx, dw, dr, db, dh0


def _direction(
    g: Sequence[Value],
    y: Value,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    h0: Value | None,
    hidden_size: int | None,
    gates: int,
) -> tuple[Direction, int]:
    """What the one direction works on, and its hidden size."""
    setup = Recurrence(g, [y], x, w, r, b, None, h0, "forward", hidden_size, 0, gates)
    (direction,) = setup.directions()
    return direction, setup.hidden


def _split(gates: Value, hidden: int) -> tuple[Value, ...]:
    return op.Split(gates, np.full(4, hidden), axis=-1, outputs=4)


def _check(standard: Sequence[str], activations: Names, **settings: Any) -> None:
    """What the kernels refuse is refused."""
    names = [n.decode() if isinstance(n, bytes) else n for n in activations or standard]
    wrong = [name for name, value in settings.items() if value is not None and value]
    if [name.lower() for name in names] != list(standard):
        wrong.append("activations")
    if wrong:
        raise GradientError(
            f"Its gradient is known for one direction and the standard activations alone, and "
            f"it sets {', '.join(wrong)}. Generate the artifacts with blockdsl, whose gradient of "
            f"the ONNX operator knows all of them."
        )
