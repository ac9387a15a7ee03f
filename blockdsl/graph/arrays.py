"""NumPy's functions on values: `np.exp(x)` appends the operator that it stands for."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from blockdsl.errors import OpError
from blockdsl.graph.op import op
from blockdsl.graph.portable import sign
from blockdsl.graph.value import Operand, Value

_OPERATORS = {
    "absolute": "Abs",
    "arccos": "Acos",
    "arccosh": "Acosh",
    "arcsin": "Asin",
    "arcsinh": "Asinh",
    "arctan": "Atan",
    "arctanh": "Atanh",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "exp": "Exp",
    "fabs": "Abs",
    "floor": "Floor",
    "isinf": "IsInf",
    "isnan": "IsNaN",
    "log": "Log",
    "logical_and": "And",
    "logical_not": "Not",
    "logical_or": "Or",
    "logical_xor": "Xor",
    "maximum": "Max",
    "minimum": "Min",
    "negative": "Neg",
    "reciprocal": "Reciprocal",
    "rint": "Round",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "tanh": "Tanh",
}
"""Universal functions of NumPy that are one operator of ONNX."""

_REFLECTED = {
    "add": "add",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "divide": "truediv",
    "divmod": "divmod",
    "floor_divide": "floordiv",
    "matmul": "matmul",
    "multiply": "mul",
    "power": "pow",
    "remainder": "mod",
    "subtract": "sub",
}
"""Universal functions that are operators of Python: `np.add(a, b)` is `a + b`."""

_COMPARED = {
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
}


def call_ufunc(
    ufunc: np.ufunc, method: str, inputs: Sequence[Any], settings: Mapping[str, Any]
) -> Any:
    """The operators that a universal function of NumPy stands for.

    Raises:
        OpError: There are none, or it is called with settings of arrays.
    """
    name = ufunc.__name__
    # `array += x` calls it with the array itself as `out`, and takes what is returned.
    in_place = [*settings] == ["out"] and settings["out"][0] is inputs[0]
    if method != "__call__" or (settings and not in_place):
        asked = method if method != "__call__" else ", ".join(settings)
        raise OpError(f"np.{name} takes no {asked} for tensors of a model. {_spelling(name)}")
    if name in ("equal", "not_equal"):  # what `array == x` calls, as well
        raise OpError(
            f"np.{name} of arrays and tensors is written x.equal(y), or ~x.equal(y): == and != "
            f"compare names, and elements are not known while the model is built."
        )
    if name in _OPERATORS:
        return getattr(op, _OPERATORS[name])(*inputs)
    if name in _UFUNCS:
        return _UFUNCS[name](*inputs)
    first, *rest = inputs
    on_left, on_right = _COMPARED.get(name) or (
        f"__{_REFLECTED.get(name)}__",
        f"__r{_REFLECTED.get(name)}__",
    )
    if name in _COMPARED or name in _REFLECTED:
        if isinstance(first, Value):
            return getattr(first, on_left)(*rest)
        return getattr(rest[0], on_right)(first)
    raise OpError(f"np.{name} is no operator of ONNX. {_spelling(name)}")


def call_function(
    function: Callable[..., Any], args: Sequence[Any], settings: Mapping[str, Any]
) -> Any:
    """The operators that a function of NumPy stands for.

    Raises:
        OpError: There are none, or it is called with settings of arrays.
    """
    name = function.__name__
    ours = _FUNCTIONS.get(name)
    if ours is None:
        raise OpError(f"np.{name} takes no tensors of a model. {_spelling(name)}")
    try:
        bound = inspect.signature(ours).bind(*args, **settings)
    except TypeError as error:
        raise OpError(
            f"np.{name} on tensors of a model takes {inspect.signature(ours)}: {error}."
        ) from error
    return ours(*bound.args, **bound.kwargs)


def _spelling(name: str) -> str:
    if hasattr(Value, name):
        return f"Write x.{name}()."
    return "Write it with the operators of ONNX, op.X(...), which dir(blockdsl.op) lists."


def _concatenate(arrays: Sequence[Operand], axis: int = 0) -> Value:
    return op.Concat(*arrays, axis=axis)


def _stack(arrays: Sequence[Operand], axis: int = 0) -> Value:
    parts = [x.unsqueeze(axis) if isinstance(x, Value) else np.expand_dims(x, axis) for x in arrays]
    return op.Concat(*parts, axis=axis)


def _squeeze(a: Value, axis: Any = None) -> Value:
    if axis is None:
        raise OpError("np.squeeze needs the axes here: write x.squeeze(axis).")
    return a.squeeze(*np.atleast_1d(axis).tolist())


_UFUNCS: dict[str, Callable[..., Any]] = {
    "fmod": lambda a, b: op.Mod(a, b, fmod=1),
    "invert": operator.invert,
    "positive": operator.pos,
    "sign": sign,
    "square": lambda a: a * a,
}
"""Universal functions that take more than one operator."""

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "amax": lambda a, axis=None, keepdims=False: a.max(axis, keepdims),
    "amin": lambda a, axis=None, keepdims=False: a.min(axis, keepdims),
    "clip": lambda a, a_min=None, a_max=None: a.clip(a_min, a_max),
    "concatenate": _concatenate,
    "expand_dims": lambda a, axis: a.unsqueeze(*np.atleast_1d(axis).tolist()),
    "max": lambda a, axis=None, keepdims=False: a.max(axis, keepdims),
    "mean": lambda a, axis=None, keepdims=False: a.mean(axis, keepdims),
    "min": lambda a, axis=None, keepdims=False: a.min(axis, keepdims),
    "ndim": lambda a: a.rank,
    "reshape": lambda a, shape: a.reshape(shape),
    "round": round,
    "shape": lambda a: a.shape,
    "squeeze": _squeeze,
    "stack": _stack,
    "sum": lambda a, axis=None, keepdims=False: a.sum(axis, keepdims),
    "transpose": lambda a, axes=None: a.transpose(*(axes or ())),
    "where": lambda condition, x, y: op.Where(condition, x, y),
}
