"""Models in ONNX Runtime's own format, for builds of the runtime that read no other."""

from __future__ import annotations

import os
from pathlib import Path

from blockdsl.backend.files import StrPath, read_model
from blockdsl.backend.providers import load_runtime
from blockdsl.backend.reason import reason
from blockdsl.backend.sessions import create_session, harmful_optimizers
from blockdsl.errors import EngineError


def convert_to_ort(model: Path, custom_op_library: StrPath | None = None) -> Path:
    """Write `X.ort` beside `X.onnx`.

    Args:
        model: The `.onnx` file.
        custom_op_library: The library of the custom operators that it uses.

    Returns:
        The path of the `.ort` file.

    Raises:
        EngineError: The installed runtime cannot load the model.
    """
    ort = load_runtime()
    target = model.with_suffix(".ort")
    options = ort.SessionOptions()
    # Layouts of one processor's making would tie the file to machines like this one.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    graph = read_model(model, weights=False)
    options.optimized_model_filepath = os.fspath(target)
    options.add_session_config_entry("session.save_model_format", "ORT")
    try:
        if custom_op_library is not None:
            options.register_custom_ops_library(os.fspath(custom_op_library))
        create_session(os.fspath(model), options, disabled_optimizers=harmful_optimizers(graph))
    except Exception as error:
        raise EngineError(
            f"{model.name} cannot be converted to the ORT format: {reason(error)}"
        ) from error
    return target
