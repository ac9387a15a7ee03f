"""Tensors that stay where they are: NumPy arrays on the CPU, device memory elsewhere.

Parameters, gradients and optimizer slots are `Buffer`s. Sessions are bound to them once, so that a
step moves nothing but the batch and the loss.
"""

from __future__ import annotations

import ctypes
import math

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, numpy_helper

from blockdsl.backend.engine import Array
from blockdsl.backend.providers import CPU, Device
from blockdsl.backend.reason import reason
from blockdsl.errors import EngineError
from blockdsl.graph.tensor import PACKED, elem_type_of, np_dtype


class Buffer:
    """A tensor of fixed type and shape at a fixed address.

    Args:
        array: What it holds; on the CPU this is taken over as the memory itself, unless it is not
            contiguous or not writable.
        device: Where it lies.

    Attributes:
        value: The same memory as an OrtValue.

    Example:
        >>> weights = np.zeros(2, np.float32)
        >>> buffer = Buffer(weights)
        >>> weights[0] = 1
        >>> buffer.array
        array([1., 0.], dtype=float32)
    """

    __slots__ = ("_host", "device", "dtype", "shape", "value")

    def __init__(self, array: Array, device: Device = CPU) -> None:
        # Not ascontiguousarray, which turns a scalar into a vector.
        array = np.require(array, requirements=["C", "A", "W"])
        self.device = device
        self.dtype = array.dtype
        self.shape: tuple[int, ...] = array.shape
        self._host: Array | None = array if device.is_host else None
        self.value = wrap(array) if device.is_host else _on_device(array, device)

    @classmethod
    def zeros(cls, dtype: np.dtype, shape: tuple[int, ...], device: Device = CPU) -> Buffer:
        """A buffer of zeros."""
        return cls(np.zeros(shape, dtype), device)

    @property
    def array(self) -> Array:
        """The live contents on the CPU (writing into them writes into the buffer); else a copy."""
        return self._host if self._host is not None else to_array(self.value)

    def write(self, array: Array) -> None:
        """Copy an array of the same type and shape into the buffer."""
        if self._host is not None:
            np.copyto(self._host, array, casting="no")
        elif is_native(self.dtype):
            self.value.update_inplace(np.require(array, requirements=["C", "A"]))
        else:
            self.value.update_inplace(wrap(np.require(array, requirements=["C", "A"])))

    def copy_from(self, other: Buffer) -> None:
        """Copy another buffer of the same type, shape and device into this one."""
        if self._host is not None:
            np.copyto(self._host, other.array)
            return
        try:
            self.value.update_inplace(other.value)  # on the device, where the runtime can
        except TypeError:  # runtimes whose OrtValues take NumPy arrays only
            self.write(other.array)

    def to(self, device: Device) -> Buffer:
        """The buffer on a device: itself when it is there already."""
        return self if device == self.device else Buffer(self.array, device)


def wrap(array: Array) -> ort.OrtValue:
    """An OrtValue on the CPU that shares a C-contiguous array's memory.

    It is a copy of elements of less than a byte: the runtime packs them, NumPy does not.
    """
    if is_native(array.dtype):
        return ort.OrtValue.ortvalue_from_numpy(array)
    elem_type = elem_type_of(array.dtype)
    if elem_type in PACKED:
        packed = np.frombuffer(numpy_helper.from_array(array).raw_data, np.uint8)
        value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), elem_type)
        ctypes.memmove(value.data_ptr(), packed.ctypes.data, packed.nbytes)
        return value
    if hasattr(ort.OrtValue, "ortvalue_from_numpy_with_onnx_type"):
        bits = array.view(f"u{array.dtype.itemsize}")
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, elem_type)
    return _wrap_as_dlpack(array)


def owned(array: Array) -> ort.OrtValue:
    """An OrtValue on the CPU with a copy of an array, in memory of its own.

    What is wrapped lives no longer than Python's OrtValue, and so not as long as its `numpy()`.
    """
    array = np.require(array, requirements=["C", "A"])
    native = is_native(array.dtype)
    if not native and not hasattr(ort.OrtValue, "ortvalue_from_numpy_with_onnx_type"):
        return _wrap_as_dlpack(array.copy())  # the capsule keeps the memory
    kind = array.dtype.type if native else elem_type_of(array.dtype)
    value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), kind, "cpu", 0)
    value.update_inplace(array if native else wrap(array))
    return value


def to_array(value: ort.OrtValue) -> Array:
    """The contents of an OrtValue, shared where it lies on the CPU in a type that NumPy has."""
    if value.element_type() == TensorProto.STRING or is_native(np_dtype(value.element_type())):
        return np.asarray(value.numpy())
    dtype = np_dtype(value.element_type())
    if value.element_type() in PACKED:
        return _unpacked(value)
    result = np.empty(value.shape(), dtype)
    if value.device_name().lower() != "cpu":
        wrap(result).update_inplace(value)
    elif result.size:
        ctypes.memmove(result.ctypes.data, value.data_ptr(), result.nbytes)
    return result


def _unpacked(value: ort.OrtValue) -> Array:
    tensor = TensorProto(data_type=value.element_type(), dims=value.shape())
    bits = PACKED[value.element_type()]
    size = -(-math.prod(value.shape()) * bits // 8)  # the last byte may be filled in part
    tensor.raw_data = ctypes.string_at(value.data_ptr(), size)
    return numpy_helper.to_array(tensor)


def is_native(dtype: np.dtype) -> bool:
    """Whether a type is NumPy's own: bfloat16 and its like come from ml_dtypes."""
    return dtype.isbuiltin == 1


def _on_device(array: Array, device: Device) -> ort.OrtValue:
    try:
        if is_native(array.dtype):
            return ort.OrtValue.ortvalue_from_numpy(array, device.kind, device.index)
        value = ort.OrtValue.ortvalue_from_shape_and_type(
            list(array.shape), elem_type_of(array.dtype), device.kind, device.index
        )
        value.update_inplace(wrap(array))
    except Exception as error:  # the runtime's classes have no common base
        raise EngineError(
            f"A tensor of {array.nbytes} bytes cannot be put on '{device}': {reason(error)}"
        ) from error
    return value


class _DLTensor(ctypes.Structure):
    """The head of DLPack's DLTensor, as far as its element type."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int * 2),
        ("ndim", ctypes.c_int),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


_DLPACK_BFLOAT = 4


def _wrap_as_dlpack(array: Array) -> ort.OrtValue:
    """Wrap a bfloat16 array in runtimes (1.19) that take such memory from DLPack alone.

    NumPy does not export bfloat16, but it exports integers of 16 bits, whose type we then correct.
    """
    if array.dtype.name != "bfloat16":
        raise TypeError(f"this onnxruntime takes no NumPy arrays of {array.dtype}")
    capsule = array.view(np.uint16).__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _DLTensor.from_address(pointer(capsule, b"dltensor"))
    tensor.code = _DLPACK_BFLOAT
    native = ort.capi._pybind_state.OrtValue
    return ort.OrtValue(native.from_dlpack(capsule, False))
