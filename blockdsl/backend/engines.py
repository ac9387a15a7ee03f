"""The two engines behind one door: what opens a state also opens its modules and optimizers."""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Any

from blockdsl.backend.engine import State, Stepper, Trainable
from blockdsl.backend.files import StrPath
from blockdsl.backend.identity import same_content
from blockdsl.backend.select import VARIABLE, select_engine
from blockdsl.errors import ArtifactError, BlockWarning, UnsupportedTypeError
from blockdsl.graph.layout import RESET


def load_state(path: StrPath, engine: str | None = None) -> State:
    """Read a checkpoint into the memory of an engine.

    Args:
        path: The checkpoint file.
        engine: `"session"`, `"training"`, or `None`: whichever the environment asks for, or the
            best for these parameters that the installed wheel has.
    """
    name = select_engine(engine)
    try:
        state: State = _engine(name).load_state(path)
    except UnsupportedTypeError:
        # The C classes train float32 alone. Who has not asked for them gets the other engine, which
        # their wheel can run too.
        if engine or os.environ.get(VARIABLE):
            raise
        state = _engine("session").load_state(path)
    return state


def open_module(
    state: State, train_model: str, eval_model: str | None, device: str, options: Any = None
) -> Trainable:
    """Open a training model and its eval model over a state."""
    module: Trainable = _engine(state.engine).open_module(
        state, train_model, eval_model, device, options
    )
    if RESET in module.input_names(training=False):
        raise ArtifactError(f"The eval model '{eval_model}' is a training model.")
    if not same_content(state.artifacts, module.artifacts):
        warnings.warn(
            f"The checkpoint belongs to other artifacts than '{train_model}': to those of another "
            f"model, or of other settings. Its parameters have the names and types of this one and "
            f"are taken as they are. If others are meant, load the checkpoint that lies beside the "
            f"training model. What is saved from now on belongs to this model.",
            BlockWarning,
            stacklevel=3,
        )
    state.artifacts = module.artifacts or state.artifacts
    return module


def open_optimizer(module: Trainable, optimizer_model: str) -> Stepper:
    """Open an optimizer model over a module's state."""
    stepper: Stepper = _engine(module.state.engine).open_stepper(module, optimizer_model)
    return stepper


def _engine(name: str) -> Any:
    """The package of an engine; imported here and not above because it imports onnxruntime."""
    return importlib.import_module(f"blockdsl.backend.{name}")
