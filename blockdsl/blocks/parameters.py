"""Parameters of blocks: their names, their types and what they are before training."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from onnx import numpy_helper

from blockdsl.errors import OpError
from blockdsl.graph.context import current
from blockdsl.graph.marks import BUFFER, PARAMETER, mark
from blockdsl.graph.tensor import FLOATS, TensorType, elem_type_of, np_dtype
from blockdsl.graph.value import Value

Array = npt.NDArray[Any]
Seed = int | np.random.Generator
"""A number, which is mixed with the name of the parameter, or a generator to draw from."""

Init = Literal["kaiming", "xavier"]
"""How weights are drawn: see `bound`."""

Initializer = (
    Literal["zeros", "ones", "kaiming", "xavier"]
    | npt.ArrayLike
    | Callable[[np.random.Generator, tuple[int, ...]], npt.ArrayLike]
)
"""The first values of a parameter: an array, or how to make one."""


def parameter(
    name: str,
    init: Initializer,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    *,
    seed: Seed = 0,
) -> Value:
    """Return a parameter of the block that is being built; training changes it.

    The block owns it: the first call in a model adds it, `<path of the block>.<name>`, and every
    further one, in the same `build` or the next, returns the same tensor.

    Args:
        name: Its name within the block.
        init: The values: an array, or a number for all; or how to make them: "zeros"; "ones";
            "kaiming" or "xavier", uniform between `-bound` and `bound` of the same initialisation
            (axes in x out for a matrix, out x in x kernel for more axes); or a function of a
            `numpy.random.Generator` and the shape that returns an array.
        shape: The shape; for an array, the one that it has.
        dtype: The element type; by default that of an array, else the floating-point type of the
            model.
        seed: A number, which is mixed with the full name, or a generator to draw from.

    Returns:
        The parameter.

    Raises:
        OpError: The values do not fit the shape, or the block has a parameter of this name with
            another shape or type in this model.

    Example:
        >>> import blockdsl
        >>> class Scale(blockdsl.Block):
        ...     def build(self, x):
        ...         return x * blockdsl.parameter("gain", "ones", x.shape[-1:])
        >>> scale = Scale()
        >>> with blockdsl.empty_base() as handle:
        ...     y = scale(scale(blockdsl.input("x", shape=("batch", 3))))
        >>> [t.name for t in handle.model.graph.initializer]
        ['Scale.gain']
    """
    return _owned(name, init, shape, dtype, seed, trained=True)


def buffer(
    name: str,
    init: Initializer,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    *,
    seed: Seed = 0,
) -> Value:
    """Return a buffer of the block that is being built: training does not change it by gradients.

    Args:
        name: Its name within the block.
        init: Its values, as for `parameter`; so are the next arguments.
        shape: The shape.
        dtype: The element type.
        seed: A number or a generator.

    Returns:
        The buffer.

    Raises:
        OpError: As for `parameter`.

    Example:
        >>> import blockdsl
        >>> class Shift(blockdsl.Block):
        ...     def build(self, x):
        ...         return x - blockdsl.buffer("mean", [0.5, 0.25, 0.25])
        >>> with blockdsl.empty_base() as handle:
        ...     y = Shift()(blockdsl.input("x", shape=("batch", 3)))
        >>> [t.name for t in handle.model.graph.initializer]
        ['Shift.mean']
    """
    return _owned(name, init, shape, dtype, seed, trained=False)


def _owned(
    name: str,
    init: Initializer,
    shape: Sequence[int] | None,
    dtype: Any,
    seed: Seed,
    *,
    trained: bool,
) -> Value:
    """Return the tensor of this name that the block being built owns, added if there is none."""
    graph, given = current(), None if isinstance(init, str) or callable(init) else np.asarray(init)
    if dtype is None and isinstance(init, np.ndarray | np.generic):
        dtype = init.dtype
    kind = dtype_of(dtype)
    if trained and elem_type_of(kind) not in FLOATS:
        raise OpError(
            f"The parameter {name!r} must be of a floating-point type to be trained, got {kind}: "
            f"use blockdsl.buffer for others."
        )
    sizes = _checked_shape(name, shape, given)
    path = graph.names.path
    full = f"{path}.{name}" if path else name
    if full not in graph.owned:
        array = _drawn(full, init, sizes, seed) if given is None else given
        tensor = numpy_helper.from_array(np.broadcast_to(array, sizes).astype(kind))
        mark(tensor, PARAMETER if trained else BUFFER)
        with graph.names.root():
            graph.owned[full] = str(graph.add_tensor(tensor, full))
    found, wanted = graph.type_of(graph.owned[full]), TensorType(elem_type_of(kind), sizes)
    if found != wanted:
        raise OpError(
            f"{full!r} is {found} in this model, and {wanted} is asked for: a block has one set of "
            f"parameters in a model, for inputs of one type. Make another block for this input."
        )
    return graph.value(graph.owned[full])


def _checked_shape(name: str, shape: Sequence[int] | None, given: Array | None) -> tuple[int, ...]:
    """Return the shape of a parameter."""
    if shape is None and given is not None:
        return given.shape
    sizes = (shape,) if isinstance(shape, int) else tuple(shape or ())
    if shape is None or not all(isinstance(n, int | np.integer) and n >= 0 for n in sizes):
        raise OpError(
            f"The shape of the parameter {name!r} must be a tuple of known sizes, got {shape!r}: "
            f"a parameter has the same size for every input."
        )
    if given is not None and given.shape not in ((), sizes):
        raise OpError(
            f"The values of the parameter {name!r} must have the shape {sizes}, got an array of "
            f"the shape {given.shape}."
        )
    return tuple(int(n) for n in sizes)


def _drawn(full: str, init: Initializer, shape: tuple[int, ...], seed: Seed) -> Array:
    """Return the first values of a parameter.

    A seed that is a number is mixed with the name: layers differ, and every build of a model
    gives the same values.
    """
    if init in ("zeros", "ones"):
        return np.asarray(float(init == "ones"))
    key = [seed, zlib.crc32(full.encode())] if isinstance(seed, int) else seed
    rng = np.random.default_rng(key)
    if isinstance(init, str):
        limit = bound(init, *_fans(full, init, shape))
        return rng.uniform(-limit, limit, shape)
    assert callable(init)
    array = np.asarray(init(rng, shape))
    if array.shape != shape:
        raise OpError(
            f"The function that makes the values of {full!r} must return the shape {shape}, got "
            f"{array.shape}."
        )
    return array


def _fans(full: str, init: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return how many inputs an output depends on, and how many outputs on an input."""
    if len(shape) < 2:
        raise OpError(
            f"The initialisation {init!r} of {full!r} needs a shape of two axes or more, got "
            f"{shape}: use 'zeros', 'ones', an array or a function of (rng, shape)."
        )
    kernel = math.prod(shape[2:])
    fan_in, fan_out = shape[:2] if len(shape) == 2 else (shape[1], shape[0])
    return fan_in * kernel, fan_out * kernel


def uniform(name: str, seed: Seed, dtype: np.dtype, limit: float, shape: tuple[int, ...]) -> Value:
    """Return a parameter drawn uniformly between -limit and limit."""
    return parameter(
        name, lambda rng, shape: rng.uniform(-limit, limit, shape), shape, dtype, seed=seed
    )


def bound(init: str, fan_in: int, fan_out: int) -> float:
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
    raise OpError(f"The initialisation must be 'kaiming' or 'xavier', got {init!r}.")


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
    graph = current().scopes[0].proto.graph
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
