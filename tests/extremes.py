"""Inputs at zeros, at numbers whose powers overflow, and at infinities, with the true gradients.

Each row is a case and, for every input by which it is differentiated, the gradient of the sum of
its outputs. `ANY` stands where there is no finite derivative, or none that a model could need.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from blockdsl import loss
from blockdsl.graph import op
from blockdsl.graph.portable import where
from blockdsl.testing import Case, R

INF = np.inf
ANY = np.nan
HUGE = 1e30
"""A float32 whose square is infinite. In float16 the largest number takes its place."""


class Extreme:
    """A row of the table.

    Args:
        case: The case.
        *gradients: The gradient by each of its inputs that is differentiated.
        double: Whether the operator takes float64.
        half: Whether the reference evaluator computes it in float16.
    """

    def __init__(self, case: Case, *gradients: Any, double: bool = True, half: bool = True) -> None:
        self.case, self.double, self.half = case, double, half
        self.gradients = [np.asarray(g, np.float64) for g in gradients]

    def __str__(self) -> str:
        return str(self.case)


class V(R):
    """An input of these numbers; in float16 the largest number is the largest one of the table."""

    def __init__(self, *values: Any) -> None:
        super().__init__(values=np.array(values, np.float64))

    def draw(self, rng: np.random.Generator, float_type: Any) -> np.ndarray:
        """As every input."""
        largest = np.finfo(float_type).max
        finite = np.clip(self.values, -largest, largest)
        return np.where(np.isinf(self.values), self.values, finite).astype(float_type)


def slopes(op_type: str, at: dict[float, float], **options: Any) -> Extreme:
    """The derivative of a function, by the points that it is taken at."""
    kinds = {kind: options.pop(kind, True) for kind in ("double", "half")}
    return Extreme(Case(op_type, [V(*at)], **options), [*at.values()], **kinds)


def along(op_type: str, rows: dict[tuple[float, ...], Any], **options: Any) -> Extreme:
    """The gradients of an operator that works along the last axis, by the rows that it is given."""
    return Extreme(Case(op_type, [V(*rows)], **options), [*rows.values()])


def formula(name: str, build: Any, inputs: list[Any], *gradients: Any, **options: Any) -> Extreme:
    """Several operators together."""
    return Extreme(Case(name, inputs, build=build, name="extreme", **options), *gradients)


STEP = {-HUGE: 0, -1e4: 0, 1e4: 1, HUGE: 1}
"""The derivative of most activations far from 0."""

FLAT = {-HUGE: 0, -1e4: 0, 1e4: 0, HUGE: 0}
"""That of those that become constant."""

ELEMENTWISE = [
    slopes("Abs", {-INF: -1, -HUGE: -1, 0: 0, HUGE: 1, INF: 1}),
    slopes("Exp", {-INF: 0, -HUGE: 0, -1e4: 0, 0: 1}),
    slopes("Log", {1e-3: 1e3, 1e4: 1e-4, HUGE: 1e-30, INF: 0}),
    slopes("Sqrt", {1e4: 0.005, HUGE: 5e-16, INF: 0}),
    slopes("Reciprocal", {-INF: 0, -HUGE: 0, HUGE: 0, INF: 0}),
    slopes("Erf", {-INF: 0, **FLAT, INF: 0}),
    slopes("Clip", {-INF: 0, **FLAT, INF: 0}, opset=7, min=-1.0, max=1.0),
    slopes("Clip", {-HUGE: 1, 0: 1, HUGE: 1}),
    Extreme(Case("Clip", [V(-INF, -HUGE, 0, HUGE, INF), -1.0, 1.0]), [0, 0, 1, 0, 0]),
    Extreme(
        Case("Max", [V(INF, -INF, 0, HUGE), V(INF, -INF, -INF, INF)]),
        [0.5, 0.5, 1, 0],
        [0.5, 0.5, 0, 1],
    ),
    Extreme(
        Case("Min", [V(INF, -INF, 0, HUGE), V(INF, -INF, -INF, INF)]),
        [0.5, 0.5, 0, 1],
        [0.5, 0.5, 1, 0],
    ),
    Extreme(Case("Div", [V(0, 1, 0), V(1e4, INF, -INF)]), [1e-4, 0, 0], [0, 0, 0]),
    *[
        Extreme(Case("Pow", [V(-INF, -1e2, 0, 1e2, INF), np.array(n)]), slope)
        for n, slope in (
            (0.0, [0, 0, 0, 0, 0]),
            (1.0, [1, 1, 1, 1, 1]),
            (2.0, [-INF, -200, 0, 200, INF]),
            (-1.0, [0, -1e-4, ANY, -1e-4, 0]),
        )
    ],
    Extreme(
        Case("Pow", [V(0, 0, 0, 0, 3), V(0, 1, 2, 2.5, 0)]),
        [0, 1, 0, 0, 0],
        [0, 0, 0, 0, np.log(3)],
    ),
    Extreme(Case("PRelu", [V(-INF, -1e4, 0, HUGE, INF), V(0.25)]), [0.25, 0.25, 0.25, 1, 1], ANY),
    Extreme(
        Case("Where", [R(values=[True, False]), V(1, INF), V(ANY, 2)], wrt=[1, 2]), [1, 0], [0, 1]
    ),
]

ACTIVATIONS = [
    *[
        slopes(name, {**STEP, 0: at_zero})
        for name, at_zero in (
            ("Elu", 1),
            ("Gelu", 0.5),
            ("HardSwish", 0.5),
            ("Mish", 0.6),
            ("Relu", 0),
            ("Softplus", 0.5),
            ("ThresholdedRelu", 0),
        )
    ],
    slopes("Celu", {**STEP, 0: 1}, double=False, half=False),
    slopes("Gelu", {**STEP, -300: 0, 0: 0.5, 300: 1}, approximate="tanh"),
    slopes("LeakyRelu", {-INF: 0.25, -HUGE: 0.25, HUGE: 1, INF: 1}, alpha=0.25),
    slopes("Selu", {-HUGE: 0, -1e4: 0, HUGE: 1.0507009}),
    slopes("Shrink", {-INF: 1, -HUGE: 1, 0: 0, HUGE: 1, INF: 1}),
    *[slopes(name, {-INF: 0, **FLAT, INF: 0}) for name in ("Sigmoid", "Tanh", "HardSigmoid")],
    slopes("Softsign", {-HUGE: 0, 0: 1, HUGE: 0}),
    slopes("Swish", {**STEP, 0: 0.5}, opset=24),
    slopes("Atan", {-HUGE: 0, 0: 1, HUGE: 0}),
    slopes("Asinh", {-1e4: 1e-4, 0: 1, 300: 1 / 300, 1e4: 1e-4}),
    slopes("Acosh", {300: 1 / 300, 1e4: 1e-4, HUGE: 1e-30}),
]

REDUCTIONS = [
    along("ReduceMax", {(-INF, -INF): [0.5, 0.5], (INF, 1): [1, 0]}, axes=[1], opset=18),
    along("ReduceMin", {(INF, INF): [0.5, 0.5], (HUGE, 1): [0, 1]}, axes=[1], opset=18),
    along("ReduceL1", {(0, 0): [0, 0], (-1e4, 1): [-1, 1]}, axes=[1], opset=18),
    along("ReduceL2", {(0, 0): [0, 0], (0, -0.25): [0, -1]}, axes=[1], opset=18),
    along(
        "ReduceLogSumExp",
        {(-INF, -INF): [0, 0], (-INF, 2): [0, 1], (1e4, -1e4): [1, 0]},
        axes=[1],
        opset=18,
    ),
    along(
        "ReduceProd",
        {(0, 0, 2): [0, 0, 0], (0, 2, 3): [6, 0, 0], (-1e4, 2, 0): [0, 0, -2e4]},
        axes=[1],
        opset=18,
    ),
    Extreme(Case("GlobalLpPool", [V([[0, 0], [0, -0.25]])]), [[[0, 0], [0, -1]]]),
    Extreme(
        Case("LpPool", [V([[0, 0, 0, -0.25]])], kernel_shape=[2], strides=[2]), [[[0, 0, 0, -1]]]
    ),
    Extreme(
        Case("MaxPool", [V([[-INF, 1, 2, INF]])], kernel_shape=[2], strides=[2]), [[[0, 1, 0, 1]]]
    ),
]

NORMALISATIONS = [
    along("LpNormalization", {(0, 0): [0, 0], (0, 1e-3): [1e3, 0]}, p=2, opset=22),
    along("LpNormalization", {(0, 0): [0, 0], (0, 1e-3): [1e3, 0]}, p=1, opset=22),
    Extreme(
        Case("LayerNormalization", [V([0, 0], [5, 5], [1e4, -1e4]), [1.0, 3]]),
        [[-316.22777, 316.22777], [-316.22777, 316.22777], [0, 0]],
    ),
    Extreme(
        Case("RMSNormalization", [V([0, 0], [5, 5], [1e4, 1e4]), [1.0, 1]]),
        [[316.22777, 316.22777], [0, 0], [0, 0]],
    ),
    Extreme(
        Case("InstanceNormalization", [V([[5, 5, 5], [1e4, -1e4, 0]]), [1.0, 1], [0.0, 0]]),
        np.zeros((1, 2, 3)),
    ),
    *[
        Extreme(
            Case(
                "BatchNormalization",
                [V(*rows), [1.0, 1], [0.0, 0], [0.0, 0], [1.0, 1]],
                training_mode=1,
                outputs=3,
                of=[0],
            ),
            np.zeros((len(rows), 2)),
        )
        for rows in ([[5, -1e4]], [[5, 0], [5, 1e4]])
    ],
]
WEIGHTS = np.array([1.0, 2, 4])


def _softmax(x):
    return op.Softmax(x) * WEIGHTS.astype(x.dtype)


def _log_softmax(x):
    """Weighted where the model has not masked it."""
    return where(x > -INF, op.LogSoftmax(x), 0) * WEIGHTS.astype(x.dtype)


def _slope_of_softmax(*x: float) -> np.ndarray:
    share = np.exp(np.array(x) - max(x))
    share /= share.sum()
    return share * (WEIGHTS - WEIGHTS @ share)


def _slope_of_log_softmax(*x: float) -> np.ndarray:
    weights = np.where(np.isinf(x), 0, WEIGHTS)
    share = np.exp(np.array(x) - max(x))
    return weights - share / share.sum() * weights.sum()


MASKED = [[-INF, 1.0, 2.0], [-INF, -INF, 5.0], [1e4, 0.0, -1e4], [-1e4, -1e4, -1e4]]

SOFTMAX = [
    formula("Softmax", _softmax, [V(*MASKED)], [_slope_of_softmax(*row) for row in MASKED]),
    formula(
        "LogSoftmax", _log_softmax, [V(*MASKED)], [_slope_of_log_softmax(*row) for row in MASKED]
    ),
    # A row that is masked as a whole is NaN, in PyTorch too. What replaces it has no gradient.
    formula(
        "a masked row that is replaced",
        lambda x: where(x > -INF, _softmax(x), 0),
        [V([-INF, -INF, -INF], [-INF, 1, 2])],
        [[0, 0, 0], _slope_of_softmax(-INF, 1, 2)],
    ),
]

GUARDED = [
    formula("a logarithm", lambda x: where(x > 0, x.log(), 0), [V(-1, 0, 2, INF)], [0, 0, 0.5, 0]),
    formula("a root", lambda x: where(x > 0, x.sqrt(), 0), [V(-1, 0, 4)], [0, 0, 0.25]),
    formula(
        "a quotient",
        lambda a, b: where(b > 0, a / b, 0),
        [V(0, 1, 2), V(0, 0, 4)],
        [0, 0, 0.25],
        [0, 0, -0.125],
    ),
    formula(
        "a quotient by a root",
        lambda a, b: where(b > 0, 3 * a / (b + 0).sqrt(), 0),
        [V(0, 1, 2), V(0, 0, 4)],
        [0, 0, 1.5],
        [0, 0, -0.375],
    ),
    formula(
        "an exponential that overflows",
        lambda x: where(x > 20, x, (1 + x.exp()).log()),
        [V(-1e4, 0, 1e4, HUGE)],
        [0, 0.5, 1, 1],
    ),
    formula("a clipped logarithm", lambda x: x.log().clip(-5, None), [V(0, 2)], [0, 0.5]),
    formula("a power", lambda x: where(x > 0, x**-0.5, 0), [V(-1, 0, 4)], [0, 0, -0.0625]),
    formula("a reciprocal", lambda x: op.Min(op.Reciprocal(x), 3), [V(0, 2)], [0, -0.25]),
    formula(
        "an arcus cosine",
        lambda x: where(x < 1, op.Acos(x), 0),
        [V(0, 1, 2)],
        [-1, 0, 0],
    ),
]

LABELS = R(values=[1, 2, 0])

LOSSES = [
    formula(
        "SoftmaxCrossEntropyLoss",
        lambda x, t: loss.CrossEntropyLoss(reduction="sum")(x, t),
        [V([-INF, 1, 1], [0, 1e4, -1e4], [-1e4, -1e4, -1e4]), LABELS],
        [[0, -0.5, 0.5], [0, 1, -1], [-2 / 3, 1 / 3, 1 / 3]],
    ),
    formula(
        "NegativeLogLikelihoodLoss",
        lambda x, t: loss.NLLLoss(reduction="sum")(x, t),
        [V([-INF, 1, 1], [0, 1e4, -1e4], [-1e4, -INF, -INF]), LABELS],
        [[0, -1, 0], [0, 0, -1], [-1, 0, 0]],
    ),
    *[
        formula(
            "BCEWithLogitsLoss",
            lambda x, t, weight=weight: loss.BCEWithLogitsLoss(reduction="sum", pos_weight=weight)(
                x, t
            ),
            [V(-HUGE, -1e4, -1e4, 0, 0, 1e4, 1e4, HUGE), V(0, 0, 1, 0, 1, 0, 1, 1)],
            [0, 0, -factor, 0.5, -0.5 * factor, 1, 0, 0],
            ANY,
        )
        for weight, factor in ((None, 1), (3.0, 3))
    ],
    formula(
        "KLDivLoss",
        lambda x, t: loss.KLDivLoss("sum")(x, t),
        [V(-1e4, -1e4, 0), V(0, 1, 0.25)],
        [0, -1, -0.25],
        [ANY, 1e4 + 1, np.log(0.25) + 1],
    ),
    *[
        formula(
            name,
            lambda x, t, made=made: made(reduction="sum")(x, t),
            [V(-HUGE, -1e4, 0, 1e4, HUGE), V(0, 0, 0, 0, 0)],
            [-1, -1, 0, 1, 1],
            [1, 1, 0, -1, -1],
        )
        for name, made in (
            ("L1Loss", loss.L1Loss),
            ("HuberLoss", loss.HuberLoss),
            ("SmoothL1Loss", loss.SmoothL1Loss),
        )
    ],
]


def _attention(mask):
    def build(q, k, v):
        return op.Attention(q, k, v, mask.astype(q.dtype) if mask.dtype.kind == "f" else mask)

    return build


SEEN = np.array([[True, False], [False, False]])
"""The first query sees the first key; the second sees none, and its row of the result is 0."""

ATTENTION = [
    formula(
        f"Attention, {kind}",
        _attention(mask),
        [V([[[1, 0], [0, 1]]]), V([[[1, 2], [3, 4]]]), V([[[1e4, 2], [3, 4]]])],
        *[np.zeros((1, 1, 2, 2))] * 2,
        [[[[1, 1], [0, 0]]]],
        opset=24,
    )
    for kind, mask in (("bool", SEEN), ("float", np.where(SEEN, 0, -INF)))
]

EXTREMES = [
    *ELEMENTWISE,
    *ACTIVATIONS,
    *REDUCTIONS,
    *NORMALISATIONS,
    *SOFTMAX,
    *GUARDED,
    *LOSSES,
    *ATTENTION,
]
