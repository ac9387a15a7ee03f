"""Losses: equal to PyTorch's in value and gradient, in every float type, at every opset, stable."""

import json
from pathlib import Path

import numpy as np
import pytest

import blockdsl
from blockdsl import loss as losses
from blockdsl.errors import BlockError, GraphError, LossError
from blockdsl.gradient import build_gradients
from blockdsl.graph import current
from blockdsl.graph.tensor import elem_type_of
from blockdsl.testing import assert_close, evaluate
from tests.engines import run

PYTORCH = json.loads(Path(__file__).with_name("data").joinpath("losses.json").read_text("utf-8"))
"""What PyTorch says: written by data/make_losses.py."""

FORMULAS = [row for row in PYTORCH if row["arguments"]["reduction"] == "none"]
NEWEST_OPSET = 21


def name_of(row):
    settings = [f"{k}={v}" for k, v in row["arguments"].items()]
    shape = "x".join(map(str, np.shape(row["prediction"])))
    return "-".join([row["loss"], shape, *settings]).replace(" ", "")


def built(row, dtype, opset=17, symbolic=False):
    """A model of a row's loss whose outputs are the loss and the gradient of its sum."""
    prediction, target = feeds_of(row, dtype).values()
    loss = getattr(losses, row["loss"])(**row["arguments"])
    axis = row["arguments"].get("axis", 1) % prediction.ndim
    shape = [f"d{i}" if symbolic and i != axis else n for i, n in enumerate(prediction.shape)]
    with blockdsl.empty_base(opset) as handle:
        x = blockdsl.input("prediction", dtype, shape)
        value = loss(x, "given")
        assert value.dtype == np.dtype(dtype)
        assert current().type_of("given").elem_type == elem_type_of(target.dtype)
        gradients = build_gradients(current(), value.sum(), [x])
        current().set_outputs([value, gradients[x]])
        current().check()
    return handle.model


def feeds_of(row, dtype):
    target = np.asarray(row["target"])
    if target.dtype.kind == "f":
        target = target.astype(dtype)
    return {"prediction": np.asarray(row["prediction"], dtype), "given": target}


def check(row, outputs, dtype, **tolerance):
    for what, got in zip(("value", "gradient"), outputs, strict=True):
        assert_close(got, row[what], dtype=dtype, gradient=what == "gradient", what=what, **tolerance)


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("row", PYTORCH, ids=name_of)
def test_equals_pytorch(row, symbolic):
    model = built(row, np.float64, symbolic=symbolic)
    check(row, evaluate(model)(feeds_of(row, np.float64)), np.float64)


@pytest.mark.parametrize("opset", [9, 11, 12, 13, NEWEST_OPSET])
@pytest.mark.parametrize("row", FORMULAS, ids=name_of)
def test_equals_pytorch_at_every_opset(row, opset):
    model = built(row, np.float64, opset)
    check(row, evaluate(model)(feeds_of(row, np.float64)), np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("row", PYTORCH, ids=name_of)
def test_runs_in_every_float_type(row, dtype):
    check(row, run(built(row, dtype), feeds_of(row, dtype)), dtype)
