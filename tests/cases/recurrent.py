"""Recurrent layers: four steps of three sequences, two inputs, a state of five."""

import numpy as np

from blockdsl.testing import Case, R

STEPS, BATCH, INPUTS, HIDDEN = 4, 3, 2, 5
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
TWO_WAYS = {"direction": "bidirectional"}
LENGTHS = R(values=np.array([4, 2, 3], np.int32))


def layer(
    op_type, *, bias=True, lengths=None, state=False, peepholes=False, steps=STEPS, **options
):
    """A layer with all its outputs, and which of its optional inputs it has."""
    directions = 2 if options.get("direction") == "bidirectional" else 1
    rows = GATES[op_type] * HIDDEN
    # What the sizes of gates follow from is static in any model.
    weights = [
        R(directions, rows, INPUTS, static=True),
        R(directions, rows, HIDDEN, static=True),
        R(directions, 2 * rows, static=True) if bias else None,
    ]
    first = R(directions, BATCH, HIDDEN)
    sequence = R(steps, BATCH, INPUTS)
    if options.get("layout"):
        first, sequence = R(BATCH, directions, HIDDEN), R(BATCH, steps, INPUTS)
    inputs = [sequence, *weights, lengths, first if state else None]
    if op_type == "LSTM":
        inputs += [first if state else None]
        inputs += [R(directions, 3 * HIDDEN, static=True)] if peepholes else []
    while inputs[-1] is None:
        inputs.pop()
    options = {"hidden_size": HIDDEN, "outputs": 3 if op_type == "LSTM" else 2} | options
    return Case(op_type, inputs, **options)


ALL = [
    layer(op_type, **options)
    for op_type in GATES
    for options in (
        {},
        {"bias": False, "outputs": 1},
        {"state": True, "of": [1]},
        {"direction": "reverse", "state": True},
        {**TWO_WAYS, "state": True, "lengths": LENGTHS},
        {"lengths": LENGTHS, "state": True},
        {"direction": "reverse", "lengths": LENGTHS},
        # ONNX Runtime has the other layout on no processor.
        {"layout": 1, "state": True, "engines": False},
        {**TWO_WAYS, "layout": 1, "state": True, "lengths": LENGTHS, "engines": False},
        {"clip": 0.4, "state": True},
        {"steps": 1, "state": True},
        {"opset": [14, 22]},
        {"opset": 7},
        {**TWO_WAYS, "state": True, "lengths": LENGTHS, "opset": [7, 8]},
    )
]

CHOSEN = [
    layer("RNN", activations=["LeakyRelu"], activation_alpha=[0.3]),
    layer("RNN", activations=["Affine"], activation_alpha=[0.4], activation_beta=[0.1]),
    layer(
        "RNN",
        activations=["ScaledTanh", "HardSigmoid"],
        activation_alpha=[0.7, 0.3],
        activation_beta=[1.2, 0.4],
        **TWO_WAYS,
    ),
    layer("RNN", activations=["Softplus"]),
    layer("RNN", activations=["Elu"], activation_alpha=[0.6]),
    layer(
        "RNN",
        activations=["Relu", "ThresholdedRelu"],
        activation_alpha=[0.3],
        **TWO_WAYS,
        opset=[7, 17],
    ),
    layer("GRU", activations=["HardSigmoid", "Softsign"], activation_alpha=[0.3], state=True),
    layer("LSTM", activations=["Sigmoid", "Affine", "Tanh"], activation_alpha=[0.8]),
    layer(
        "LSTM",
        activations=["HardSigmoid", "Softsign", "Elu"],
        activation_alpha=[0.3, 0.9],
        activation_beta=[0.4],
    ),
]

OPTIONS = [
    *[
        layer("GRU", linear_before_reset=1, **options)
        for options in (
            {"state": True},
            {"bias": False},
            {"lengths": LENGTHS, "state": True, **TWO_WAYS},
            {"clip": 0.4},
        )
    ],
    layer("LSTM", peepholes=True, state=True),
    layer("LSTM", peepholes=True, lengths=LENGTHS, **TWO_WAYS),
    layer("LSTM", peepholes=True, layout=1, engines=False),
    layer("LSTM", input_forget=1, state=True),
    layer("LSTM", input_forget=1, peepholes=True),
    layer("LSTM", of=[2]),
    layer("LSTM", of=[1, 2], lengths=LENGTHS, state=True),
]

CASES = [*ALL, *CHOSEN, *OPTIONS]
