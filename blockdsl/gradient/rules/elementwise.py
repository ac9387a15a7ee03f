"""Rules of arithmetic and of functions applied element by element."""

from __future__ import annotations

from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.value import Value


@vjp("Identity")
def identity(g: Value, y: Value, x: Value) -> Value:
    """y = x        dx = g"""
    return g


@vjp("Add", broadcast=True)
def add(g: Value, y: Value, a: Value, b: Value) -> tuple[Value, Value]:
    """y = a + b        da = g        db = g"""
    return g, g


@vjp("Sub", broadcast=True)
def sub(g: Value, y: Value, a: Value, b: Value) -> tuple[Value, Value]:
    """y = a - b        da = g        db = -g"""
    return g, -g


@vjp("Mul", broadcast=True)
def mul(g: Value, y: Value, a: Value, b: Value) -> tuple[Value, Value]:
    """y = a b        da = g b        db = g a"""
    return g * b, g * a


@vjp("Div", broadcast=True)
def div(g: Value, y: Value, a: Value, b: Value) -> tuple[Value, Value]:
    """y = a / b        da = g / b        db = -g y / b"""
    return g / b, -g * y / b


@vjp("Neg")
def neg(g: Value, y: Value, x: Value) -> Value:
    """y = -x        dx = -g"""
    return -g


@vjp("Abs")
def abs_(g: Value, y: Value, x: Value) -> Value:
    """y = |x|        dx = g sign(x)        (0 at 0)"""
    return g * op.Sign(x)


@vjp("Relu")
def relu(g: Value, y: Value, x: Value) -> Value:
    """y = max(x, 0)        dx = g where x > 0        (0 at 0)"""
    return op.Where(x > 0, g, 0)


@vjp("Exp")
def exp(g: Value, y: Value, x: Value) -> Value:
    """y = e^x        dx = g y"""
    return g * y


@vjp("Log")
def log(g: Value, y: Value, x: Value) -> Value:
    """y = ln x        dx = g / x"""
    return g / x


@vjp("Sqrt")
def sqrt(g: Value, y: Value, x: Value) -> Value:
    """y = sqrt(x)        dx = g / (2 y)"""
    return g / (2 * y)


@vjp("Sigmoid")
def sigmoid(g: Value, y: Value, x: Value) -> Value:
    """y = 1 / (1 + e^-x)        dx = g y (1 - y)"""
    return g * y * (1 - y)


@vjp("Tanh")
def tanh(g: Value, y: Value, x: Value) -> Value:
    """y = tanh(x)        dx = g (1 - y^2)"""
    return g * (1 - y * y)
