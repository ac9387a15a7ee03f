"""Which engine trains, and what there is to run on.

Nothing here imports onnxruntime before it has to be asked.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping

from blockdsl.backend.limits import runtime_limits
from blockdsl.backend.providers import (
    has_training_api,
    installed_wheels,
    listed,
    load_runtime,
)
from blockdsl.errors import EngineError, near

ENGINES = ("session", "training")
VARIABLE = "BLOCKDSL_ENGINE"


def select_engine(engine: str | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """The engine that is used: the one asked for, or the best of the installed wheel.

    Args:
        engine: `"session"` or `"training"`; `None` leaves it to the environment variable
            `BLOCKDSL_ENGINE`, and that to the wheel: `training` where it has the on-device
            training API, else `session`.
        environment: The environment variables.

    Raises:
        EngineError: There is no such engine, or the installed wheel cannot run it.

    Example:
        >>> select_engine("session")
        'session'
    """
    asked = environment.get(VARIABLE) or None if engine is None else engine
    asked_by = f"{VARIABLE}=" if engine is None else "engine="
    if asked is not None and not (isinstance(asked, str) and asked in ENGINES):
        raise EngineError(
            f"There is no engine {asked_by}{asked!r}. The engines are 'session' (any ONNX Runtime) "
            f"and 'training' (onnxruntime-training). {near(str(asked), ENGINES)}"
        )
    if asked == "session":
        load_runtime()
        return asked
    if has_training_api():
        return "training"
    if asked is None:
        return "session"
    wheels = installed_wheels()
    raise EngineError(
        f"{asked_by}'training' needs onnxruntime-training(-cpu) 1.19.2, but "
        f"{listed(wheels) or 'another onnxruntime'} is installed. Use the engine 'session', or "
        f"`pip uninstall -y {' '.join(wheels) or 'onnxruntime'}` and "
        "`pip install 'blockdsl[training]'`."
    )


def describe(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What runs models here, in words: the facts that `blockdsl info` prints.

    It never raises: what is wrong with an installation is one of the facts.

    Args:
        environment: The environment variables.
    """
    facts = {
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "wheel": listed(installed_wheels()) or "none",
    }
    try:
        runtime = load_runtime()
        limits = runtime_limits()
        facts["onnxruntime"] = runtime.__version__
        facts["providers"] = ", ".join(runtime.get_available_providers())
        facts["loads"] = f"opset {limits.opset} and IR version {limits.ir_version}, or older"
        facts["engines"] = ", ".join(ENGINES if has_training_api() else ENGINES[:1])
        because = "the best that is installed"
        if environment.get(VARIABLE):
            because = f"{VARIABLE} is set"
        facts["engine"] = f"{select_engine(environment=environment)} ({because})"
    except EngineError as error:
        facts["problem"] = str(error)
    return facts
