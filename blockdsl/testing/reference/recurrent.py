"""`RNN`, `GRU` and `LSTM` with all that ONNX says of them.

`onnx.reference` ignores sequence lengths, activations, clipping and coupled gates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun

Array = npt.NDArray[Any]
Activation = Callable[[Array], Array]
Step = Callable[..., tuple[Array, ...]]


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


_ACTIVATIONS: dict[str, tuple[Callable[..., Array], dict[str, float]]] = {
    # name: function, the default of each of its parameters
    "Relu": (lambda x: np.maximum(x, 0), {}),
    "Tanh": (np.tanh, {}),
    "Sigmoid": (_sigmoid, {}),
    "Softsign": (lambda x: x / (1 + np.abs(x)), {}),
    "Softplus": (lambda x: np.log1p(np.exp(x)), {}),
    "Affine": (lambda x, alpha, beta: alpha * x + beta, {"alpha": 1.0, "beta": 0.0}),
    "LeakyRelu": (lambda x, alpha: np.where(x < 0, alpha * x, x), {"alpha": 0.01}),
    "ThresholdedRelu": (lambda x, alpha: np.where(x > alpha, x, 0), {"alpha": 1.0}),
    "ScaledTanh": (lambda x, alpha, beta: alpha * np.tanh(beta * x), {"alpha": 1.0, "beta": 1.0}),
    "HardSigmoid": (
        lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
        {"alpha": 0.2, "beta": 0.5},
    ),
    "Elu": (lambda x, alpha: np.where(x < 0, alpha * (np.exp(x) - 1), x), {"alpha": 1.0}),
}


class _Recurrent(OpRun):
    """What the three have in common: directions, lengths, layout, activations, clipping."""

    op_domain = ""
    default_activations: tuple[str, ...]

    def _outputs(
        self,
        cell: Callable[[int, list[Activation]], Step],
        x: Array,
        lengths: Array | None,
        initial: Sequence[Array | None],
        hidden: int,
        attributes: dict[str, Any],
    ) -> tuple[Array, ...]:
        """Y and the last states, in the layout asked for.

        Args:
            cell: From a direction and its activations to a step: (x_t, *states) -> states.
            x: The input.
            lengths: How many steps each sequence has.
            initial: The initial states.
            hidden: The size of a state.
            attributes: The attributes of the node.
        """
        batchwise = bool(attributes.get("layout"))
        if batchwise:
            x = np.swapaxes(x, 0, 1)
            initial = [s if s is None else np.swapaxes(s, 0, 1) for s in initial]
        steps, batch = x.shape[:2]
        lengths = np.full(batch, steps) if lengths is None else lengths
        directions = {"forward": [False], "reverse": [True]}.get(
            attributes["direction"], [False, True]
        )
        activations = self._activations(attributes, len(directions))
        found = []
        for number, reverse in enumerate(directions):
            states = [
                np.zeros((batch, hidden), x.dtype) if s is None else s[number] for s in initial
            ]
            found.append(_over_time(cell(number, activations[number]), x, lengths, states, reverse))
        y = np.stack([out for out, _ in found], axis=1)
        last = [np.stack(parts) for parts in zip(*(states for _, states in found), strict=True)]
        if batchwise:
            y = np.transpose(y, [2, 0, 1, 3])
            last = [np.swapaxes(s, 0, 1) for s in last]
        return (y, *last)[: len(self.onnx_node.output)]

    def _activations(self, attributes: dict[str, Any], directions: int) -> list[list[Activation]]:
        """The activations of each direction; their parameters are taken in turn."""
        names = attributes["activations"] or list(self.default_activations) * directions
        given = {
            "alpha": list(attributes["activation_alpha"] or ()),
            "beta": list(attributes["activation_beta"] or ()),
        }
        clip = attributes["clip"]
        functions, size = [], len(names) // directions
        for number, name in enumerate(names):
            function, parameters = _ACTIVATIONS[name]
            values = {
                key: given[key].pop(0) if given[key] else default
                for key, default in parameters.items()
            }
            # ONNX Runtime clips what goes into gates, and not the state that an LSTM returns.
            functions.append(_clipped(function, values, clip if number % size < 2 else None))
        return [functions[i * size : (i + 1) * size] for i in range(directions)]


def _clipped(
    function: Callable[..., Array], values: dict[str, float], clip: float | None
) -> Activation:
    if not clip:
        return lambda x: function(x, **values)
    return lambda x: function(np.clip(x, -clip, clip), **values)


def _over_time(
    step: Step, x: Array, lengths: Array, states: list[Array], reverse: bool
) -> tuple[Array, list[Array]]:
    """All hidden states, and the last ones: a sequence that has ended keeps its state."""
    if reverse:
        x = _reversed(x, lengths)
    hidden = []
    for t, x_t in enumerate(x):
        alive = (t < lengths)[:, None]
        moved = step(x_t, *states)
        states = [np.where(alive, new, old) for new, old in zip(moved, states, strict=True)]
        hidden.append(np.where(alive, moved[0], 0))
    y = np.stack(hidden) if hidden else np.zeros((0, *states[0].shape), x.dtype)
    return (_reversed(y, lengths) if reverse else y), states


def _reversed(x: Array, lengths: Array) -> Array:
    """Every sequence backwards, its padding left where it is."""
    out = x.copy()
    for i, length in enumerate(lengths):
        out[:length, i] = x[:length, i][::-1]
    return out


class RNN(_Recurrent):
    """h' = f(x W' + h R' + b)."""

    default_activations = ("Tanh",)

    def _run(
        self,
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        lengths: Array | None = None,
        h: Array | None = None,
        **attributes: Any,
    ) -> tuple[Array, ...]:
        hidden = r.shape[-1]

        def cell(number: int, activations: list[Activation]) -> Step:
            f = activations[0]
            bias = 0 if b is None else b[number, :hidden] + b[number, hidden:]
            return lambda x_t, h_t: (f(x_t @ w[number].T + h_t @ r[number].T + bias),)

        return self._outputs(cell, x, lengths, [h], hidden, attributes)


class GRU(_Recurrent):
    """z, r = f(...); n = g(...); h' = (1 - z) n + z h."""

    default_activations = ("Sigmoid", "Tanh")

    def _run(
        self,
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        lengths: Array | None = None,
        h: Array | None = None,
        linear_before_reset: int = 0,
        **attributes: Any,
    ) -> tuple[Array, ...]:
        hidden = r.shape[-1]

        def cell(number: int, activations: list[Activation]) -> Step:
            f, g = activations
            biases = np.zeros(6 * hidden, x.dtype) if b is None else b[number]
            wz, wr, wn = np.split(w[number], 3)
            rz, rr, rn = np.split(r[number], 3)
            bz, br, bn, cz, cr, cn = np.split(biases, 6)

            def step(x_t: Array, h_t: Array) -> tuple[Array, ...]:
                z = f(x_t @ wz.T + h_t @ rz.T + bz + cz)
                reset = f(x_t @ wr.T + h_t @ rr.T + br + cr)
                if linear_before_reset:
                    n = g(x_t @ wn.T + bn + reset * (h_t @ rn.T + cn))
                else:
                    n = g(x_t @ wn.T + bn + (reset * h_t) @ rn.T + cn)
                return ((1 - z) * n + z * h_t,)

            return step

        return self._outputs(cell, x, lengths, [h], hidden, attributes)


class LSTM(_Recurrent):
    """i, o, f = f(...); c' = f c + i g(...); h' = o h(c')."""

    default_activations = ("Sigmoid", "Tanh", "Tanh")

    def _run(
        self,
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        lengths: Array | None = None,
        h: Array | None = None,
        c: Array | None = None,
        p: Array | None = None,
        input_forget: int = 0,
        **attributes: Any,
    ) -> tuple[Array, ...]:
        hidden = r.shape[-1]

        def cell(number: int, activations: list[Activation]) -> Step:
            f, g, squash = activations
            bias = 0 if b is None else b[number, : 4 * hidden] + b[number, 4 * hidden :]
            peep = np.zeros(3 * hidden, x.dtype) if p is None else p[number]
            pi, po, pf = np.split(peep, 3)

            def step(x_t: Array, h_t: Array, c_t: Array) -> tuple[Array, ...]:
                gates = x_t @ w[number].T + h_t @ r[number].T + bias
                i, o, forget, new = np.split(gates, 4, axis=-1)
                i = f(i + pi * c_t)
                forget = 1 - i if input_forget else f(forget + pf * c_t)
                c_next = forget * c_t + i * g(new)
                o = f(o + po * c_next)
                return o * squash(c_next), c_next

            return step

        return self._outputs(cell, x, lengths, [h, c], hidden, attributes)


OPERATORS: list[Any] = [RNN, GRU, LSTM]
