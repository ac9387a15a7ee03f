"""Parameters of blocks: their names, their types and what they are before training."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from blockdsl.errors import OpError
from blockdsl.graph.context import current
from blockdsl.graph.tensor import TensorType, elem_type_of, np_dtype
from blockdsl.graph.value import Value

Array = npt.NDArray[Any]
Seed = int | np.random.Generator
"""A number, which is mixed with the name of the parameter, or a generator to draw from."""

Init = Literal["kaiming", "xavier"]
"""How weights are drawn: see `bound`."""


def parameter(name: str, array: Array) -> Value:
    """A parameter of the block that is being built, named `<path of the block>.<name>`."""
    graph = current()
    full = _full(name)
    with graph.names.root():
        return graph.add_parameter(array, full)


def buffer(name: str, array: Array) -> Value:
    """As `parameter`, for what training does not change by gradients: running statistics."""
    graph = current()
    full = _full(name)
    with graph.names.root():
        return graph.add_buffer(array, full)


def drawn(
    name: str, seed: Seed, dtype: np.dtype, draw: Callable[[np.random.Generator], Array]
) -> Value:
    """A parameter with random values.

    A seed that is a number is mixed with the name: layers differ, and every build of a model
    gives the same values.
    """
    key = [seed, zlib.crc32(_full(name).encode())] if isinstance(seed, int) else seed
    return parameter(name, draw(np.random.default_rng(key)).astype(dtype))


def uniform(name: str, seed: Seed, dtype: np.dtype, limit: float, shape: tuple[int, ...]) -> Value:
    """A parameter drawn uniformly between -limit and limit."""
    return drawn(name, seed, dtype, lambda rng: rng.uniform(-limit, limit, shape))


def bound(init: Init, fan_in: int, fan_out: int) -> float:
    """The bound of the uniform distribution that weights are drawn from.

    Args:
        init: "kaiming" for `1 / sqrt(fan_in)`, which is Kaiming's with a = sqrt(5) and PyTorch's
            default; "xavier" for `sqrt(6 / (fan_in + fan_out))`.
        fan_in: How many inputs an output depends on.
        fan_out: How many outputs depend on an input.

    Raises:
        OpError: There is no such initialisation.

    Example:
        >>> bound("kaiming", 4, 8), round(bound("xavier", 4, 8), 4)
        (0.5, 0.7071)
    """
    if init == "kaiming":
        return float(fan_in**-0.5)
    if init == "xavier":
        return float((6 / (fan_in + fan_out)) ** 0.5)
    raise OpError(f"There is no initialisation {init!r}: use 'kaiming' or 'xavier'.")


def float_type(x: Value, block: object) -> np.dtype:
    """The type of an input, which the parameters of a block take.

    Raises:
        OpError: It is no floating-point type.
    """
    if not x.type.is_float:
        raise OpError(
            f"{type(block).__name__} takes a floating-point tensor, and {str(x)!r} has the type "
            f"{x.type}. Cast it first: x.cast('float32')."
        )
    return x.dtype


def check_size(x: Value, axis: int, size: int, block: object) -> None:
    """Refuse an input whose axis does not have the size that the block was made for.

    Raises:
        OpError: It has another one.
    """
    found = x.shape[axis]
    if isinstance(found, int) and found != size:
        raise OpError(
            f"{block!r} takes tensors of size {size} along axis {axis}, and {x!s} has the type "
            f"{x.type}."
        )


def model_float_type() -> np.dtype:
    """The floating-point type of the model: that of its first output or input that has one."""
    graph = current().proto.graph
    for info in (*graph.output, *graph.input):
        tensor = TensorType.of(info.type)
        if tensor is not None and tensor.is_float:
            return tensor.dtype
    return np.dtype(np.float32)


def dtype_of(dtype: Any) -> np.dtype:
    """A NumPy type, given as one or as an `onnx.TensorProto.DataType`; the model's for None."""
    if dtype is None:
        return model_float_type()
    return np_dtype(dtype if isinstance(dtype, int) else elem_type_of(dtype))


def _full(name: str) -> str:
    path = current().names.path
    return f"{path}.{name}" if path else name
