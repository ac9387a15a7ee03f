"""One step of RNN, GRU and LSTM, as the ONNX specification writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from blockdsl.errors import GradientError, near
from blockdsl.graph import op
from blockdsl.graph.portable import where
from blockdsl.graph.value import Value

Activation = Callable[[Value], Value]

_PLAIN: dict[str, Activation] = {
    "relu": Value.relu,
    "tanh": Value.tanh,
    "sigmoid": Value.sigmoid,
    "softsign": lambda x: x / (1 + x.abs()),
    "softplus": Value.softplus,
}

_SCALED: dict[str, tuple[float, float, Callable[[Value, float, float], Value]]] = {
    # name: default alpha, default beta, function
    "affine": (1.0, 0.0, lambda x, a, b: a * x + b),
    "leakyrelu": (0.01, 0.0, lambda x, a, b: op.LeakyRelu(x, alpha=a)),
    "thresholdedrelu": (1.0, 0.0, lambda x, a, b: where(x > a, x, 0)),
    "scaledtanh": (1.0, 1.0, lambda x, a, b: a * (b * x).tanh()),
    "hardsigmoid": (0.2, 0.5, lambda x, a, b: op.HardSigmoid(x, alpha=a, beta=b)),
    "elu": (1.0, 0.0, lambda x, a, b: op.Elu(x, alpha=a)),
}

_TAKES_BETA = frozenset({"affine", "scaledtanh", "hardsigmoid"})


def activations(
    names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None
) -> list[Activation]:
    """The activation functions of a recurrent operator.

    Args:
        names: Their names, in any case.
        alphas: The values of alpha, consumed in order by the functions that have one.
        betas: The same for beta.

    Returns:
        A function for each name.

    Raises:
        GradientError: There is no activation of that name.
    """
    alpha, beta = list(alphas or ()), list(betas or ())
    found: list[Activation] = []
    for name in map(str.lower, names):
        if name in _PLAIN:
            found.append(_PLAIN[name])
        elif name in _SCALED:
            a, b, function = _SCALED[name]
            a = alpha.pop(0) if alpha else a
            b = beta.pop(0) if beta and name in _TAKES_BETA else b
            found.append(lambda x, a=a, b=b, function=function: function(x, a, b))  # type: ignore[misc]
        else:
            known = near(name, [*_PLAIN, *_SCALED])
            raise GradientError(f"Recurrent operators have no activation {name!r}. {known}")
    return found


@dataclass(frozen=True)
class Gates:
    """What the steps of all cells share."""

    functions: Sequence[Activation]
    hidden: int
    clip: float | None

    def split(self, x: Value, count: int) -> tuple[Value, ...]:
        """The parts of a tensor that belong to each gate."""
        if count == 1:
            return (x,)
        return op.Split(x, [self.hidden] * count, axis=-1, outputs=count)

    def bounded(self, x: Value) -> Value:
        """The input of a gate's activation, clipped if the operator clips."""
        return x if self.clip is None else x.clip(-self.clip, self.clip)


def rnn_step(gates: Gates, x: Value, recurrent: Value) -> Value:
    """H' = f(x + r), where x and r are the shares of the input and of the last state."""
    return gates.functions[0](gates.bounded(x + recurrent))


def gru_step(gates: Gates, x: Value, h: Value, recurrent: Value, weight: Value | None) -> Value:
    """H' = (1 - z) g(...) + z h.

    Args:
        gates: Activations f and g.
        x: The input's share of the gates z, r, h.
        h: The last state.
        recurrent: The last state's share of the gates z, r and, if reset comes after the product,
            h.
        weight: If reset comes before the product: the recurrent weight of gate h, transposed.
    """
    f, g = gates.functions
    xz, xr, xh = gates.split(x, 3)
    if weight is None:
        rz, rr, rh = gates.split(recurrent, 3)
    else:
        rz, rr = gates.split(recurrent, 2)
    z = f(gates.bounded(xz + rz))
    r = f(gates.bounded(xr + rr))
    share = r * rh if weight is None else (r * h) @ weight
    return (1 - z) * g(gates.bounded(xh + share)) + z * h


def lstm_step(
    gates: Gates, x: Value, c: Value, peepholes: Value | None, coupled: bool
) -> tuple[Value, Value]:
    """C' = f c + i g(...), h' = o h(c').

    Args:
        gates: Activations f, g and h.
        x: The shares of the input and of the last state in the gates i, o, f, c.
        c: The last cell state.
        peepholes: The weights by which the gates i, o, f see the cell state.
        coupled: Whether the forget gate is one minus the input gate.

    Returns:
        The new hidden and cell states.
    """
    f, g, h = gates.functions
    xi, xo, xf, xc = gates.split(x, 4)
    pi, po, pf = gates.split(peepholes, 3) if peepholes is not None else (None, None, None)
    i = f(gates.bounded(xi if pi is None else xi + pi * c))
    forget = 1 - i if coupled else f(gates.bounded(xf if pf is None else xf + pf * c))
    new_c = forget * c + i * g(gates.bounded(xc))
    o = f(gates.bounded(xo if po is None else xo + po * new_c))
    return o * h(new_c), new_c
