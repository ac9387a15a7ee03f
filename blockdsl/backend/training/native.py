"""The C classes of onnxruntime-training, reached without importing torch.

`onnxruntime.training`, the Python package around them, imports torch; the classes themselves live
in the extension module and need nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from blockdsl.backend.providers import Device, has_training_api, load_runtime
from blockdsl.backend.reason import reason
from blockdsl.errors import BlockError, EngineError


@cache
def native() -> Any:
    """The extension module, with `Module`, `Optimizer` and `CheckpointState`.

    Raises:
        EngineError: The installed wheel was built without them.
    """
    if not has_training_api():
        raise EngineError(
            f"The installed onnxruntime {load_runtime().__version__} has no training API. Use "
            "engine='session', which needs none, or install onnxruntime-training-cpu 1.19.2: "
            "`pip install 'blockdsl[training]'`."
        )
    return importlib.import_module("onnxruntime.capi._pybind_state")


def native_device(device: Device) -> Any:
    """A device as the C classes take it."""
    kinds = native().OrtDevice
    return kinds(getattr(kinds, device.kind)(), kinds.default_memory(), device.index)


@contextmanager
def reporting(what: str) -> Iterator[None]:
    """Turn an exception of the C classes into an `EngineError` that says what was being done."""
    try:
        yield
    except BlockError:
        raise
    except Exception as error:
        raise EngineError(f"{what} failed in onnxruntime: {reason(error)}") from error
