"""The type of a tensor: its element type and what is known of its shape."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx
from onnx import TensorProto, TypeProto, helper, numpy_helper

from blockdsl.errors import GraphError, OpError

Dim = int | str | None
Shape = tuple[Dim, ...]
Axes = int | Sequence[int]

FLOATS = frozenset(
    {TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE}
)
NARROW = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
"""The floats in which sums over many terms are too inexact, and that some kernels cannot add."""

PACKED = {
    TensorProto.DataType.Value(name): bits
    for name, bits in {"INT2": 2, "UINT2": 2, "INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4}.items()
    if hasattr(TensorProto, name)  # an older onnx lacks some
}
"""Element types of which ONNX puts several into a byte, and their number of bits."""


@dataclass(frozen=True)
class TensorType:
    """An element type (`onnx.TensorProto.DataType`) and a shape, `None` when the rank is unknown.

    A dimension is an integer, the name of a symbolic size, or `None`.

    Example:
        >>> print(TensorType(onnx.TensorProto.FLOAT, ("batch", 3)))
        float32[batch, 3]
    """

    elem_type: int
    shape: Shape | None = None

    @classmethod
    def of(cls, proto: TypeProto) -> TensorType | None:
        """The tensor type in a `TypeProto`; `None` for sequences, optionals and maps."""
        if not proto.HasField("tensor_type"):
            return None
        tensor = proto.tensor_type
        if not tensor.HasField("shape"):
            return cls(tensor.elem_type)
        return cls(tensor.elem_type, tuple(map(_dim, tensor.shape.dim)))

    def proto(self) -> TypeProto:
        """The `TypeProto` of this type."""
        return helper.make_tensor_type_proto(self.elem_type, self.shape)

    @property
    def dtype(self) -> np.dtype:
        """The NumPy element type."""
        return np_dtype(self.elem_type)

    @property
    def is_float(self) -> bool:
        """Whether a gradient can flow through such a tensor."""
        return self.elem_type in FLOATS

    def admits(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of that shape is of this type, whatever is not known of it.

        Example:
            >>> TensorType(onnx.TensorProto.FLOAT, ("batch", 3)).admits((8, 3))
            True
        """
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(
            size == wanted or not isinstance(wanted, int)
            for size, wanted in zip(shape, self.shape, strict=True)
        )

    def __str__(self) -> str:
        name = self.dtype.name if self.elem_type else "undefined"
        if self.shape is None:
            return f"{name}[unknown rank]"
        return f"{name}[{', '.join('?' if d is None else str(d) for d in self.shape)}]"


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    return known_dim(getattr(dim, dim.WhichOneof("value") or "dim_param"))


def known_dim(size: int | str | None) -> Dim:
    """Return a dimension, None if it is unknown.

    Converters write -1, or names without a letter or digit, for any size: "?" in two places need
    not be the same.
    """
    if isinstance(size, str):
        return size if any(map(str.isalnum, size)) else None
    return None if size is None or size < 0 else int(size)


def array_of(tensor: TensorProto) -> np.ndarray:
    """The value of a constant.

    Raises:
        GraphError: It is damaged.
    """
    try:
        return numpy_helper.to_array(tensor)
    except ValueError as error:
        raise GraphError(
            f"The tensor {tensor.name!r} is damaged: its values do not fill the shape "
            f"{tuple(tensor.dims)}. Write it anew: onnx.numpy_helper.from_array."
        ) from error


@cache
def np_dtype(elem_type: int) -> np.dtype:
    """The NumPy type of an ONNX element type (bfloat16 through ml_dtypes).

    Raises:
        OpError: The installed onnx has none for it.

    Example:
        >>> np_dtype(onnx.TensorProto.INT64)
        dtype('int64')
    """
    found = np.dtype(helper.tensor_dtype_to_np_dtype(elem_type))
    if helper.np_dtype_to_tensor_dtype(found) != elem_type:  # float32 stands for bfloat16
        name = TensorProto.DataType.Name(elem_type).lower()
        raise OpError(f"{name} tensors need onnx 1.19, and {onnx.__version__} is installed.")
    return found


def elem_type_of(dtype: np.typing.DTypeLike) -> int:
    """The ONNX element type of a NumPy type.

    Raises:
        OpError: There is none.

    Example:
        >>> elem_type_of("float32") == onnx.TensorProto.FLOAT
        True
    """
    try:
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    except (TypeError, ValueError) as error:
        raise OpError(
            f"ONNX has no element type {dtype!r}; it has np.float32, np.int64, ..."
        ) from error


def axes_in(axes: Axes, rank: int) -> list[int]:
    """Axes counted from the beginning: opsets before 11 know no negative ones.

    Raises:
        OpError: An axis is out of range, or no integer.

    Example:
        >>> axes_in(-1, 3), axes_in((0, -2), 3)
        ([2], [0, 1])
    """
    try:
        given = [operator.index(a) for a in np.atleast_1d(np.asarray(axes, object))]
    except TypeError as error:
        raise OpError(f"An axis is an integer, and the axes are {axes!r}.") from error
    for axis in given:
        if not -rank <= axis < rank:
            raise OpError(
                f"Axis {axis} is out of range for rank {rank}: use {-rank} to {rank - 1}."
            )
    return [axis % rank for axis in given]


def axis_in(axis: int, rank: int) -> int:
    """One axis counted from the beginning; see `axes_in`."""
    return axes_in(axis, rank)[0]


def is_unknown(dim: Dim) -> bool:
    """Whether nothing is known of a dimension, not even a name that the user gave it.

    ONNX's inference calls such dimensions `unk__0`, `unk__1`, ...
    """
    return dim is None or (isinstance(dim, str) and dim.startswith("unk__"))


def is_static(shape: Sequence[Dim] | None) -> bool:
    """Whether every dimension of a shape is a known integer."""
    return shape is not None and all(isinstance(d, int) for d in shape)
