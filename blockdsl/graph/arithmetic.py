"""The operators of `Value` that are more than one operator of ONNX, in every opset."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from blockdsl.errors import OpError
from blockdsl.graph.context import current
from blockdsl.graph.op import op
from blockdsl.graph.portable import equal as equal
from blockdsl.graph.portable import where
from blockdsl.graph.value import Operand, Value

_FIRST_MOD = 10
_FIRST_ROUND = 11
_FIRST_BITWISE = 18


def divide(x: Operand, y: Operand) -> Value:
    """`x / y` of floats; ONNX divides integers without their fractions, which `//` stands for."""
    like = _like(x, y)
    if not like.type.is_float:
        raise OpError(
            f"{str(like)!r} is {like.type}, and ONNX drops the fractions of divided integers: "
            f"write x // y for that, or x.cast(np.float32) / y."
        )
    return op.Div(x, y)


def modulo(x: Operand, y: Operand) -> Value:
    """`x % y`: the remainder has the sign of y, as in Python."""
    like = _like(x, y)
    if current().opset() < _FIRST_MOD:
        return op.Sub(x, op.Mul(floor_divide(x, y), y))
    if not like.type.is_float:
        return op.Mod(x, y)
    rest = op.Mod(x, y, fmod=1)
    return where(_opposite(rest, y), rest + y, rest)


def floor_divide(x: Operand, y: Operand) -> Value:
    """`x // y`, rounded down."""
    like = _like(x, y)
    if not like.type.is_float:
        quotient = op.Div(x, y)
        rest = op.Sub(x, quotient * y)
        return quotient - _opposite(rest, y).cast(like.elem_type)
    if current().opset() < _FIRST_ROUND:
        return op.Floor(op.Div(x, y))
    return op.Round(op.Div(op.Sub(x, modulo(x, y)), y))


def _opposite(rest: Value, y: Operand) -> Value:
    """Whether a remainder is not zero and has another sign than the divisor."""
    divisor = current().value(y) if isinstance(y, str) else np.asarray(y)
    return ((rest < 0) & (divisor > 0)) | ((rest > 0) & (divisor < 0))


def power(x: Operand, y: Operand) -> Value:
    """`x ** y`, in the type of x; a number takes the type of the tensor."""
    like = _like(x, y)
    if isinstance(x, str):
        return op.Pow(x, y if isinstance(y, str) else _exactly(y, like))
    base = np.asarray(x)
    if like.type.is_float or base.dtype.kind != "f":
        return op.Pow(base.astype(like.dtype), y)
    return op.Pow(base.astype(np.float32) if isinstance(x, float) else base, y)


def _exactly(exponent: Operand, like: Value) -> np.ndarray:
    array = np.asarray(exponent)
    result = array.astype(like.dtype)
    if not like.type.is_float and (np.any(result != array) or np.any(array < 0)):
        raise OpError(
            f"{str(like)!r} holds integers ({like.type}), and so does its power, which {exponent!r}"
            f" cannot have: write x.cast(np.float32) ** {exponent!r}."
        )
    return result


def rounded(x: Value, digits: int | None = None) -> Value:
    """`round(x)`, halves to the even neighbour, or to a number of digits after the point."""
    if current().opset() < _FIRST_ROUND:
        raise OpError(
            f"Round needs opset {_FIRST_ROUND}, and the model has opset {current().opset()}: "
            f"write op.Floor(x + 0.5)."
        )
    if not digits:
        return x if not x.type.is_float else op.Round(x)
    return op.Round(x * 10.0**digits) / 10.0**digits


def less(x: Value, y: Operand) -> Value:
    """`x < y`."""
    return _compared("Less", x, y)


def greater(x: Value, y: Operand) -> Value:
    """`x > y`."""
    return _compared("Greater", x, y)


def _compared(name: str, x: Value, y: Operand) -> Value:
    """A comparison, of integers too: before opset 9 the operators take floats alone."""
    if not x.type.is_float and x.graph.opset() < 9:
        x, y = (v.cast(TensorProto.DOUBLE) if isinstance(v, Value) else v for v in (x, y))
    compare: Any = getattr(op, name)
    result: Value = compare(x, y)
    return result


def logical(name: str, *operands: Operand) -> Value:
    """`And`, `Or`, `Xor` or `Not` of truth values; of integers the same of their bits."""
    like = _like(*operands)
    bits = like.elem_type != TensorProto.BOOL
    if bits and like.type.is_float:
        raise OpError(
            f"{str(like)!r} is {like.type}: &, |, ^ and ~ take truth values, such as x > 0, or "
            f"integers."
        )
    if bits and current().opset() < _FIRST_BITWISE:
        raise OpError(
            f"{str(like)!r} is {like.type}: bits of integers need opset {_FIRST_BITWISE}, and the "
            f"model has opset {current().opset()}. For truth values write x.cast(bool)."
        )
    operate: Any = getattr(op, f"Bitwise{name}" if bits else name)
    result: Value = operate(*operands)
    return result


def _like(*operands: Operand) -> Value:
    """The operand that is a tensor, whose type numbers take."""
    graph = current()
    for operand in operands:
        if isinstance(operand, Value):
            return operand
        if isinstance(operand, str) and operand in graph:
            return graph.value(operand)
    raise OpError(f"One of the operands must be a tensor, got {operands!r}.")
