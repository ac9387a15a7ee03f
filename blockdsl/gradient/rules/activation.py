"""Rules of activation functions. At a kink they do what PyTorch does."""

from __future__ import annotations

import math

from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.portable import where
from blockdsl.graph.value import Value


@vjp("Relu")
def relu(g: Value, y: Value, x: Value) -> Value:
    """y = max(x, 0)        dx = g where x > 0        (0 at 0)

    A product, since ONNX Runtime's `Where` takes four times as long on a CPU; and of the output,
    which the next operator keeps in memory anyway.
    """
    return g * (y > 0).cast(y.elem_type)


@vjp("LeakyRelu")
def leaky_relu(g: Value, y: Value, x: Value, *, alpha: float) -> Value:
    """y = x where x > 0, else a x        dx = g where x > 0, else a g        (a g at 0)"""
    return where(x > 0, g, alpha * g)


@vjp("PRelu", broadcast=True)
def prelu(g: Value, y: Value, x: Value, slope: Value) -> tuple[Value, Value]:
    """y = x where x > 0, else s x        dx = g where x > 0, else s g        ds = g x elsewhere"""
    positive = x > 0
    return where(positive, g, g * slope), where(positive, 0, g * x)


@vjp("ThresholdedRelu")
def thresholded_relu(g: Value, y: Value, x: Value, *, alpha: float) -> Value:
    """y = x where x > a, else 0        dx = g where x > a        (0 at a)"""
    return where(x > alpha, g, 0)


@vjp("Shrink")
def shrink(g: Value, y: Value, x: Value, *, lambd: float) -> Value:
    """y = x -+ b where |x| > l, else 0        dx = g where |x| > l        (0 at l)"""
    return where(x.abs() > lambd, g, 0)


@vjp("Elu")
def elu(g: Value, y: Value, x: Value, *, alpha: float) -> Value:
    """y = x where x > 0, else a (e^x - 1)        dx = g where x > 0, else g (y + a)"""
    return where(x > 0, g, g * (y + alpha))


@vjp("Celu")
def celu(g: Value, y: Value, x: Value, *, alpha: float) -> Value:
    """y = x where x > 0, else a (e^(x/a) - 1)        dx = g where x > 0, else g (y/a + 1)"""
    return where(x > 0, g, g * (y / alpha + 1))


@vjp("Selu")
def selu(g: Value, y: Value, x: Value, *, alpha: float, gamma: float) -> Value:
    """y = c x where x > 0, else c a (e^x - 1)        dx = c g where x > 0, else g (y + c a)"""
    return g * where(x > 0, gamma, y + gamma * alpha)


@vjp("Sigmoid")
def sigmoid(g: Value, y: Value, x: Value) -> Value:
    """y = 1 / (1 + e^-x)        dx = g y (1 - y)"""
    return g * (y * (1 - y))


@vjp("HardSigmoid")
def hard_sigmoid(g: Value, y: Value, x: Value, *, alpha: float, beta: float) -> Value:
    """y = max(0, min(1, a x + b))        dx = a g where 0 < y < 1        (0 at the ends)"""
    return where((y > 0) & (y < 1), alpha * g, 0)


@vjp("HardSwish")
def hard_swish(g: Value, y: Value, x: Value) -> Value:
    """y = x max(0, min(1, x/6 + 1/2))        dx = 0 below -3, g above 3, else g (x/3 + 1/2)"""
    return where(x <= -3, 0, where(x < 3, g * (x / 3 + 0.5), g))


@vjp("Softplus")
def softplus(g: Value, y: Value, x: Value) -> Value:
    """y = ln(1 + e^x)        dx = g sigmoid(x)"""
    return g * x.sigmoid()


@vjp("Softsign")
def softsign(g: Value, y: Value, x: Value) -> Value:
    """y = x / (1 + |x|)        dx = g / (1 + |x|)^2"""
    return g / (1 + x.abs()).square()


@vjp("Swish")
def swish(g: Value, y: Value, x: Value, *, alpha: float) -> Value:
    """y = x s, s = sigmoid(a x)        dx = g (s + a y (1 - s))"""
    s = (x if alpha == 1 else alpha * x).sigmoid()
    return g * (s + alpha * y * (1 - s))


@vjp("Mish")
def mish(g: Value, y: Value, x: Value) -> Value:
    """y = x t, t = tanh(ln(1 + e^x))        dx = g (t + x sigmoid(x) (1 - t^2))"""
    t = op.Softplus(x).tanh()
    return g * (t + x * x.sigmoid() * (1 - t * t))


@vjp("Gelu")
def gelu(g: Value, y: Value, x: Value, *, approximate: str) -> Value:
    """y = x P(x)        dx = g (P(x) + x P'(x)), P the normal distribution or its approximation"""
    return g * (tanh_gelu_slope(x) if approximate == "tanh" else gelu_slope(x))


def gelu_slope(x: Value) -> Value:
    """The derivative of x P(x), P the normal distribution."""
    share = 0.5 + 0.5 * op.Erf(x * math.sqrt(0.5))
    density = (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return share + x * density


def tanh_gelu_slope(x: Value) -> Value:
    """The derivative of x (1 + tanh(c (x + k x^3))) / 2.

    Beyond 10 it is 0 or 1 to the last digit, and the powers of x overflow.
    """
    c, k = math.sqrt(2 / math.pi), 0.044715
    x = x.clip(-10, 10)
    square = x * x
    t = (x * (c + c * k * square)).tanh()
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * (c + 3 * c * k * square)
