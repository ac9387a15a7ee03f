"""Reads training models, those of onnxruntime-training included, in plain ONNX."""

from __future__ import annotations

import os

from onnx import ModelProto

from blockdsl.backend.files import StrPath
from blockdsl.backend.foreign import replace_foreign_operators
from blockdsl.backend.session.load import load_rewritable
from blockdsl.errors import EngineError, GradientError, GraphError

TRAINING = "training model"


def load_training_model(path: StrPath) -> ModelProto:
    """Read a training model that a stock runtime can run, but for the accumulators.

    Raises:
        ModelFileError: The file is missing or no model.
        EngineError: The model is in the `.ort` format, or holds an operator of the training build
            that has no plain form.
    """
    model = load_rewritable(path, TRAINING)
    try:
        replace_foreign_operators(model)
    except (GradientError, GraphError) as error:
        raise EngineError(
            f"The session engine cannot run the {TRAINING} '{os.fspath(path)}': {error} The "
            "training engine may (engine='training', `pip install 'blockdsl[training]'`)."
        ) from error
    return model
