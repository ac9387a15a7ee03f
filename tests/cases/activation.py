"""Activation functions."""

import numpy as np

from blockdsl.testing import Case, R

CASES = [
    Case("Relu", [R(2, 3)], expected=lambda x: np.maximum(x, 0), opset=[7, 9, 17]),
    Case("LeakyRelu", [R(2, 3)], opset=[7, 17]),
    Case("LeakyRelu", [R(2, 3)], alpha=0.3),
    Case("PRelu", [R(2, 3), R(3)], opset=[7, 9, 17]),
    Case("PRelu", [R(2, 3, 2), R(3, 1)]),
    Case("PRelu", [R(2, 3), R(1)]),
    Case("ThresholdedRelu", [R(2, 3)], alpha=0.2, opset=[10, 22]),
    Case("Shrink", [R(2, 3)], lambd=0.4, bias=0.1, opset=9),
    Case("Elu", [R(2, 3)], opset=[7, 22]),
    Case("Elu", [R(2, 3)], alpha=0.7),
    Case("Celu", [R(2, 3)], opset=28, engines=False),
    Case("Celu", [R(2, 3)], alpha=0.7, opset=28, engines=False),
    Case("Selu", [R(2, 3)], opset=[7, 22]),
    Case("Selu", [R(2, 3)], alpha=1.5, gamma=0.9),
    Case("Sigmoid", [R(2, 3)], expected=lambda x: 1 / (1 + np.exp(-x)), opset=[7, 17]),
    Case("HardSigmoid", [R(2, 3, low=-4, high=4)], opset=[7, 22]),
    Case("HardSigmoid", [R(2, 3)], alpha=0.9, beta=0.4),
    Case("HardSwish", [R(2, 3, low=-5, high=5)], opset=[14, 22]),
    Case("Softplus", [R(2, 3)], opset=[7, 22]),
    Case("Softsign", [R(2, 3)], opset=[7, 22]),
    Case("Swish", [R(2, 3)]),
    Case("Swish", [R(2, 3)], alpha=1.7),
    Case("Mish", [R(2, 3)], opset=[18, 22]),
    Case("Gelu", [R(2, 3)]),
    Case("Gelu", [R(2, 3)], approximate="tanh"),
    Case("SwiGLU", [R(2, 3), R(2, 3)], engines=False),
]
