"""OrtValues in and out, for the API, which imports no onnxruntime before something is to be run."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from blockdsl.backend.engine import Array
from blockdsl.backend.providers import Device, load_runtime
from blockdsl.errors import StateError

if TYPE_CHECKING:
    from onnxruntime import OrtValue, SessionOptions

__all__ = [
    "OrtValue",
    "SessionOptions",
    "as_array",
    "as_ort_value",
    "contiguous",
    "flat_array",
    "is_ort_value",
    "is_text",
]


def is_ort_value(value: object) -> bool:
    """Whether a value is an OrtValue, of Python's class or of the C extension's."""
    return isinstance(value, _classes())


def is_text(value: object) -> bool:
    """Whether a value is an array of strings, which no OrtValue can be made of."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "OUS"


def as_ort_value(value: Any) -> OrtValue:
    """An OrtValue of either class as one of Python's class."""
    python, native = _classes()
    return python(value) if isinstance(value, native) else value


def as_array(value: Any) -> Array:
    """The contents of an OrtValue of either class; an array is given back as it is."""
    if isinstance(value, np.ndarray):
        return value
    array: Array = _buffers().to_array(as_ort_value(value))
    return array


def contiguous(flat: Array, device: str) -> Any:
    """A tensor of the C extension's OrtValue class that owns a copy of `flat`.

    That class, not Python's, is what onnxruntime-training's `get_contiguous_parameters` returns;
    it has `numpy()`, `shape()`, `data_type()` and `device_name()`.
    """
    where = Device.parse(device)
    # Not `ortvalue_from_numpy`: on a CPU that one borrows the array's memory, which only Python's
    # class keeps alive.
    value = load_runtime().OrtValue.ortvalue_from_shape_and_type(
        list(flat.shape), flat.dtype.type, where.kind, where.index
    )
    value.update_inplace(np.ascontiguousarray(flat))
    return value._ortvalue


def flat_array(buffer: Any) -> Array:
    """The elements of a buffer, in one dimension.

    Args:
        buffer: An OrtValue of either class, or anything that NumPy makes an array of.
    """
    if is_ort_value(buffer):
        return as_array(buffer).reshape(-1)
    try:
        if isinstance(buffer, np.ndarray) or hasattr(buffer, "__array__"):
            return np.asarray(buffer).reshape(-1)
    except Exception as error:  # `__array__` may raise anything
        raise StateError(
            f"The parameter buffer, a {type(buffer).__name__}, does not turn into an array: {error}"
        ) from error
    raise StateError(
        f"A parameter buffer is an OrtValue or a NumPy array, not a {type(buffer).__name__}."
    )


@cache
def _classes() -> tuple[type, type]:
    """The two classes of tensors in the runtime's memory: Python's and the C extension's."""
    runtime = load_runtime()
    native = importlib.import_module("onnxruntime.capi._pybind_state")
    return runtime.OrtValue, native.OrtValue


@cache
def _buffers() -> Any:
    """The module of buffers, which imports onnxruntime."""
    load_runtime()
    return importlib.import_module("blockdsl.backend.buffer")
