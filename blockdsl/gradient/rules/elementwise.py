"""Rules of arithmetic and of functions applied element by element."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import reduce

from blockdsl.gradient.registry import vjp
from blockdsl.graph.portable import equal, sign, where
from blockdsl.graph.value import Value


@vjp("Ceil", "Floor", "Round", "Sign")
def step(g: Value, y: Value, x: Value) -> None:
    """y = x, in steps        dx = 0"""
    return None


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


@vjp("Div", broadcast=True, singular=1)
def div(g: Value, y: Value, a: Value, b: Value) -> tuple[Value, Value]:
    """y = a / b        da = g / b        db = -g y / b"""
    da = g / b
    return da, -da * y


@vjp("Mod", broadcast=True)
def mod(g: Value, y: Value, a: Value, b: Value) -> tuple[Value, Value]:
    """y = a - b n, n a whole number        da = g        db = -g n"""
    return g, g * ((y - a) / b)


@vjp("Sum", broadcast=True)
def sum_(g: Value, y: Value, *xs: Value) -> tuple[Value, ...]:
    """y = x1 + x2 + ..        dxi = g"""
    return (g,) * len(xs)


@vjp("Mean", broadcast=True)
def mean(g: Value, y: Value, *xs: Value) -> tuple[Value, ...]:
    """y = (x1 + .. + xn) / n        dxi = g / n"""
    return (g / len(xs),) * len(xs)


@vjp("Max", broadcast=True)
def max_(g: Value, y: Value, *xs: Value) -> tuple[Value, ...]:
    """y = max(x1, x2, ..)        dxi = g where xi = y, shared evenly by all of which it is true

    As torch.maximum, which takes two.
    """
    return _shared(g, [~(x < y) for x in xs])


@vjp("Min", broadcast=True)
def min_(g: Value, y: Value, *xs: Value) -> tuple[Value, ...]:
    """y = min(x1, x2, ..)        dxi = g where xi = y, shared evenly by all of which it is true

    As torch.minimum, which takes two.
    """
    return _shared(g, [~(x > y) for x in xs])


def _shared(g: Value, attained: Sequence[Value]) -> tuple[Value, ...]:
    if len(attained) == 1:
        return (g,)
    counts = [a.cast(g.elem_type) for a in attained]
    share = g / reduce(operator.add, counts)
    return tuple(where(a, share, 0) for a in attained)


@vjp("Clip", broadcast=True)
def clip(
    g: Value, y: Value, x: Value, low: Value | None, high: Value | None
) -> tuple[Value | None, ...]:
    """y = min(max(x, low), high)        dx = g where y = x        dlow, dhigh = g where they are y

    As torch.clamp: at a bound it is x that the gradient flows to, and where low > high, to high.
    """
    dx = where(equal(x, y), g, 0)
    dlow = dhigh = None
    if low is not None:
        below = x < low
        dlow = where(below if high is None else below & (low < high), g, 0)
    if high is not None:
        above = x > high
        dhigh = where(above if low is None else above | (high < low), g, 0)
    return dx, dlow, dhigh


@vjp("Neg")
def neg(g: Value, y: Value, x: Value) -> Value:
    """y = -x        dx = -g"""
    return -g


@vjp("Abs")
def abs_(g: Value, y: Value, x: Value) -> Value:
    """y = |x|        dx = g sign(x)        (0 at 0)"""
    return g * sign(x)


@vjp("Exp", singular=0)
def exp(g: Value, y: Value, x: Value) -> Value:
    """y = e^x        dx = g y"""
    return g * y


@vjp("Log", singular=0)
def log(g: Value, y: Value, x: Value) -> Value:
    """y = ln x        dx = g / x"""
    return g / x


@vjp("Sqrt", singular=0)
def sqrt(g: Value, y: Value, x: Value) -> Value:
    """y = sqrt(x)        dx = g / (2 y)"""
    return g / (2 * y)


@vjp("Reciprocal", singular=0)
def reciprocal(g: Value, y: Value, x: Value) -> Value:
    """y = 1 / x        dx = -g y^2"""
    return -g * (y * y)


@vjp("Erf")
def erf(g: Value, y: Value, x: Value) -> Value:
    """y = erf(x)        dx = 2 / sqrt(pi) g e^(-x^2)"""
    return (2 / math.sqrt(math.pi)) * g * (-x * x).exp()


@vjp("Pow", broadcast=True, singular=0)
def pow_(g: Value, y: Value, x: Value, n: Value) -> tuple[Value, Value | None]:
    """y = x^n        dx = g n x^(n-1)        dn = g y ln x

    Where x and n are 0, dx is 0; where x is 0 and n is not negative, dn is 0, as in PyTorch.
    """
    dn = None
    if n.type.is_float:
        nothing = equal(x, 0) & ~(n < 0)
        dn = where(nothing, 0, g * y * where(nothing, 1, x).log())
    if n.constant is not None and n.constant.size == 1:
        return _power_rule(g, y, x, float(n.constant.reshape(()))), dn
    n = n.cast(x.elem_type)
    flat = equal(x, 0) & equal(n, 0)
    return g * n * x ** where(flat, 0, n - 1), dn


def _power_rule(g: Value, y: Value, x: Value, n: float) -> Value:
    """The derivative by the base for a number as exponent."""
    if n == 0:
        return g * 0
    if n == 1:
        return g
    if n == 2:
        return 2 * g * x
    if n == 3:
        return 3 * g * (x * x)
    if n == 0.5:
        return 0.5 * g / y
    return n * g * x ** (n - 1)


@vjp("Cast")
def cast(g: Value, y: Value, x: Value) -> Value:
    """y = x in another float type        dx = g in the type of x"""
    return g.cast(x.elem_type) if x.type.is_float else g


@vjp("CastLike")
def cast_like(g: Value, y: Value, x: Value, target: Value) -> tuple[Value, None]:
    """y = x in the float type of another tensor        dx = g in the type of x"""
    return g.cast(x.elem_type), None
