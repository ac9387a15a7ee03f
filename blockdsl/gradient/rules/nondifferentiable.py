"""Operators that take and give floating-point numbers and have no derivative.

What gives integers or booleans needs no entry: nothing flows back through it.
"""

from __future__ import annotations

from blockdsl.gradient.registry import no_gradient

no_gradient("Bernoulli", "Multinomial", reason="it draws at random")
no_gradient(
    "EyeLike",
    "RandomNormalLike",
    "RandomUniformLike",
    reason="it takes only the shape of its input",
)
no_gradient("NonMaxSuppression", reason="it returns indices")
no_gradient("BitCast", reason="it takes bits for what they are not")
no_gradient("MelWeightMatrix", reason="it is piecewise constant")
no_gradient("TfIdfVectorizer", reason="it counts")
no_gradient(
    "ConvInteger",
    "MatMulInteger",
    "QLinearConv",
    "QLinearMatMul",
    reason="it computes with quantized numbers (QuantizeLinear and DequantizeLinear train)",
)
