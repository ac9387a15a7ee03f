"""Trainer says what it trains."""

import logging

import numpy as np
from onnx import helper

from blockdsl.trainer import Trainer
from tests.placed import placed
from tests.runs import generate


def test_what_is_trained_is_logged(tmp_path, engine, caplog):
    # Whoever opened artifacts could not see what training changes.
    step = helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    arrays = {"w": np.ones((4, 3), np.float32), "b": np.zeros(3, np.float32)}
    generate(tmp_path, placed([step], arrays, "initializer"), frozen_params=["b"])
    with caplog.at_level(logging.INFO, logger="blockdsl"):
        Trainer(tmp_path, engine=engine)
    assert "Trains 1 of 2 parameters; frozen: b" in caplog.messages
