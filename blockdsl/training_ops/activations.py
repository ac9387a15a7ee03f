"""Gradients of activations and of the softmax family."""

from __future__ import annotations

from blockdsl.gradient.engine import pull_back
from blockdsl.gradient.rules.activation import (
    gelu_slope,
    leaky_relu,
    relu,
    sigmoid,
    tanh_gelu_slope,
)
from blockdsl.gradient.rules.softmax import log_softmax, softmax
from blockdsl.gradient.rules.trigonometric import tanh
from blockdsl.graph import current, op
from blockdsl.graph.value import Value
from blockdsl.training_ops.registry import training_operator


@training_operator("ReluGrad")
def relu_grad(dy: Value, x: Value) -> Value:
    """dx = dy where x > 0        (x may be the output as well)"""
    return relu(dy, x, x)


@training_operator("LeakyReluGrad")
def leaky_relu_grad(dy: Value, y: Value, *, alpha: float = 0.01) -> Value:
    """dx = dy where y > 0, else a dy"""
    return leaky_relu(dy, y, y, alpha=alpha)


@training_operator("SigmoidGrad")
def sigmoid_grad(dy: Value, y: Value) -> Value:
    """dx = dy y (1 - y)"""
    return sigmoid(dy, y, y)


@training_operator("TanhGrad")
def tanh_grad(dy: Value, y: Value) -> Value:
    """dx = dy (1 - y^2)"""
    return tanh(dy, y, y)


@training_operator("GeluGrad")
def gelu_grad(dy: Value, x: Value) -> Value:
    """dx = dy (P(x) + x P'(x)), P the normal distribution"""
    return dy * gelu_slope(x)


@training_operator("FastGeluGrad")
def fast_gelu_grad(dy: Value, x: Value) -> Value:
    """dx = dy times the slope of the approximation by tanh"""
    return dy * tanh_gelu_slope(x)


@training_operator("BiasGeluGrad_dX")
def bias_gelu_grad(dy: Value, x: Value, bias: Value) -> Value:
    """dx = dy (P(z) + z P'(z)), z = x + bias"""
    return dy * gelu_slope(x + bias)


@training_operator("BiasFastGeluGrad_dX")
def bias_fast_gelu_grad(dy: Value, x: Value, bias: Value) -> Value:
    """dx = dy times the slope of the approximation by tanh, at x + bias"""
    return dy * tanh_gelu_slope(x + bias)


@training_operator("QuickGeluGrad")
def quick_gelu_grad(dy: Value, x: Value, *, alpha: float = 1.702) -> Value:
    """dx = dy times the slope of x sigmoid(a x)"""
    y = op.microsoft.QuickGelu(x, alpha=alpha)
    dx: Value
    (dx,) = pull_back(current(), {y: dy}, [x])
    return dx


@training_operator("SoftmaxGrad")
def softmax_grad_before_13(dy: Value, y: Value, *, axis: int = 1) -> Value:
    """dx = y (dy - sum(dy y)), over all axes from the given one on"""
    return softmax(dy, y, y, axis=axis, replaced=False)


@training_operator("SoftmaxGrad_13")
def softmax_grad(dy: Value, y: Value, *, axis: int = -1) -> Value:
    """dx = y (dy - sum(dy y)), along an axis"""
    return softmax(dy, y, y, axis=axis, replaced=False)


@training_operator("LogSoftmaxGrad")
def log_softmax_grad_before_13(dy: Value, y: Value, *, axis: int = 1) -> Value:
    """dx = dy - e^y sum(dy), over all axes from the given one on"""
    return log_softmax(dy, y, y, axis=axis, replaced=False)


@training_operator("LogSoftmaxGrad_13")
def log_softmax_grad(dy: Value, y: Value, *, axis: int = -1) -> Value:
    """dx = dy - e^y sum(dy), along an axis"""
    return log_softmax(dy, y, y, axis=axis, replaced=False)
