"""Integers that are known before a model runs: shapes, and what is computed from them.

Exporters and function bodies write shapes as little programs (`Shape`, `Slice`, `Concat`, ...).
Their results are followed here, entry by entry, with None for an entry that depends on a symbolic
dimension. What is known of the shape that a `Reshape` is given says the rank of its result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, TypeProto, helper, numpy_helper

from blockdsl.graph.tensor import Shape, TensorType, np_dtype

Known = np.ndarray
"""An array of objects: an integer, or None for one that is not known."""


def known(array: np.ndarray) -> Known | None:
    """A constant as known integers, `None` if it has other numbers."""
    return array.astype(object) if array.dtype.kind in "iub" else None


def folds(node: NodeProto) -> bool:
    """Whether the entries of what a node computes are followed one by one."""
    return (node.op_type in _FOLDS or node.op_type in _OF_SHAPES) and not node.domain


def known_shape(shape: Shape) -> Known:
    """A shape as known integers."""
    dims = np.empty(len(shape), object)
    dims[:] = [d if isinstance(d, int) else None for d in shape]
    return dims


def as_tensor(value: Known, proto: TypeProto | None) -> TensorProto | None:
    """Integers as a constant of a type, `None` unless all of them and the type are known."""
    if proto is None or any(entry is None for entry in value.flat):
        return None
    return numpy_helper.from_array(value.astype(np_dtype(proto.tensor_type.elem_type)))


def fold(
    node: NodeProto, values: Mapping[str, Known], types: Mapping[str, TypeProto]
) -> Known | None:
    """What is known of the output of a node.

    Args:
        node: A node that computes integers: from integers, or of a shape.
        values: What is known of integers.
        types: What is known of the types of tensors.

    Returns:
        What is known of its output, `None` if that is nothing.
    """
    if node.op_type in _OF_SHAPES and not node.domain:
        found = types.get(node.input[0])
        tensor = TensorType.of(found) if found is not None else None
        if tensor is None or tensor.shape is None:
            return None
        return _OF_SHAPES[node.op_type](
            known_shape(tensor.shape), {a.name: a.i for a in node.attribute}
        )
    function = _FOLDS.get(node.op_type) if not node.domain else None
    if function is None or any(name and name not in values for name in node.input):
        return None
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    try:
        return function([values[n] if n else None for n in node.input], attributes)
    except (IndexError, ValueError, TypeError, ZeroDivisionError):
        # An unknown number where one is needed (a bound of a slice), or a model that is wrong.
        return None


def reshaped(shape: Known, like: Shape | None) -> Shape:
    """The shape of a `Reshape`, from what is known of its second input.

    Args:
        shape: The second input.
        like: The shape of the first input.
    """
    dims: list[int | str | None] = []
    for i, d in enumerate(shape.tolist()):
        if d == 0 and like is not None and i < len(like):
            dims.append(like[i])
        else:
            dims.append(d if isinstance(d, int) and d > 0 else None)
    return tuple(dims)


def _size(shape: Known, attributes: Mapping[str, int]) -> Known | None:
    known_dims = shape.tolist()
    return None if None in known_dims else np.asarray(math.prod(known_dims), object)


_OF_SHAPES: dict[str, Callable[[Known, Mapping[str, int]], Known | None]] = {
    "Shape": lambda shape, bounds: shape[bounds.get("start") : bounds.get("end")],
    "Size": _size,
}


def _elementwise(function: Callable[[int, int], int]) -> Callable[..., Known]:
    ufunc = np.frompyfunc(
        lambda a, b: None if a is None or b is None else function(int(a), int(b)), 2, 1
    )
    return lambda inputs, attributes: np.asarray(ufunc(*inputs), object)


def _divide(a: int, b: int) -> int:
    """ONNX divides integers towards zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _where(condition: Known, a: Known, b: Known) -> Known | None:
    if any(entry is None for entry in condition.flat):
        return None
    return np.asarray(np.where(condition.astype(bool), a, b), object)


def _ints(value: Known | None, attributes: Mapping[str, Any], name: str) -> list[int] | None:
    """Axes or bounds, given as an input or, in older opsets, as an attribute."""
    if value is not None:
        return [int(v) for v in value.reshape(-1)]
    return attributes.get(name)


def _slice(inputs: list[Known | None], attributes: Mapping[str, Any]) -> Known:
    data, *rest = inputs
    starts, ends, axes, steps = (
        _ints(rest[i] if i < len(rest) else None, attributes, name)
        for i, name in enumerate(("starts", "ends", "axes", "steps"))
    )
    if data is None or starts is None or ends is None:
        raise ValueError("Slice needs its data, starts and ends.")
    result = data
    axes = axes or list(range(len(starts)))
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        key = [slice(None)] * result.ndim
        key[axis] = slice(start, None if step < 0 and end < -result.shape[axis] else end, step)
        result = result[tuple(key)]
    return result


def _squeeze(inputs: list[Any], attributes: Mapping[str, Any]) -> Known:
    axes = _ints(inputs[1] if len(inputs) > 1 else None, attributes, "axes")
    squeezed: Known = np.squeeze(inputs[0], None if axes is None else tuple(axes))
    return squeezed


def _unsqueeze(inputs: list[Any], attributes: Mapping[str, Any]) -> Known:
    axes = _ints(inputs[1] if len(inputs) > 1 else None, attributes, "axes")
    return np.expand_dims(inputs[0], tuple(axes or ()))


def _cast(inputs: list[Any], attributes: Mapping[str, Any]) -> Known | None:
    return inputs[0] if attributes["to"] in (TensorProto.INT64, TensorProto.INT32) else None


_FOLDS: dict[str, Callable[[list[Any], Mapping[str, Any]], Known | None]] = {
    "Add": _elementwise(lambda a, b: a + b),
    "Sub": _elementwise(lambda a, b: a - b),
    "Mul": _elementwise(lambda a, b: a * b),
    "Div": _elementwise(_divide),
    "Equal": _elementwise(lambda a, b: a == b),
    "Where": lambda inputs, attributes: _where(*inputs),
    "Identity": lambda inputs, attributes: inputs[0],
    "Cast": _cast,
    "Concat": lambda inputs, attributes: np.concatenate(inputs, attributes["axis"]),
    "Gather": lambda inputs, attributes: np.asarray(
        np.take(inputs[0], inputs[1].astype(np.int64), attributes.get("axis", 0)), object
    ),
    "Reshape": lambda inputs, attributes: inputs[0].reshape([int(d) for d in inputs[1]]),
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}
