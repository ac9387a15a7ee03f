"""Rules of trigonometric and hyperbolic functions and their inverses."""

from __future__ import annotations

from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.value import Value


@vjp("Sin")
def sin(g: Value, y: Value, x: Value) -> Value:
    """y = sin(x)        dx = g cos(x)"""
    return g * op.Cos(x)


@vjp("Cos")
def cos(g: Value, y: Value, x: Value) -> Value:
    """y = cos(x)        dx = -g sin(x)"""
    return -g * op.Sin(x)


@vjp("Tan")
def tan(g: Value, y: Value, x: Value) -> Value:
    """y = tan(x)        dx = g (1 + y^2)"""
    return g * (1 + y * y)


@vjp("Asin", singular=0)
def asin(g: Value, y: Value, x: Value) -> Value:
    """y = asin(x)        dx = g / sqrt(1 - x^2)"""
    return g / ((1 - x) * (1 + x)).sqrt()


@vjp("Acos", singular=0)
def acos(g: Value, y: Value, x: Value) -> Value:
    """y = acos(x)        dx = -g / sqrt(1 - x^2)"""
    return -g / ((1 - x) * (1 + x)).sqrt()


@vjp("Atan")
def atan(g: Value, y: Value, x: Value) -> Value:
    """y = atan(x)        dx = g / (1 + x^2)"""
    return g / (1 + x * x)


@vjp("Sinh", singular=0)
def sinh(g: Value, y: Value, x: Value) -> Value:
    """y = sinh(x)        dx = g cosh(x)"""
    return g * op.Cosh(x)


@vjp("Cosh", singular=0)
def cosh(g: Value, y: Value, x: Value) -> Value:
    """y = cosh(x)        dx = g sinh(x)"""
    return g * op.Sinh(x)


@vjp("Tanh")
def tanh(g: Value, y: Value, x: Value) -> Value:
    """y = tanh(x)        dx = g (1 - y^2)"""
    return g * (1 - y * y)


@vjp("Asinh")
def asinh(g: Value, y: Value, x: Value) -> Value:
    """y = asinh(x)        dx = g / cosh(y)        (the root of 1 + x^2, which overflows earlier)"""
    return g / op.Cosh(y)


@vjp("Acosh", singular=0)
def acosh(g: Value, y: Value, x: Value) -> Value:
    """y = acosh(x)        dx = g / sqrt(x^2 - 1)"""
    return g / ((x - 1).sqrt() * (x + 1).sqrt())


@vjp("Atanh", singular=0)
def atanh(g: Value, y: Value, x: Value) -> Value:
    """y = atanh(x)        dx = g / (1 - x^2)"""
    return g / ((1 - x) * (1 + x))
