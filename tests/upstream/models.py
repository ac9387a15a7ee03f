"""What the scripts train: small models, their data, and how an error is written down.

No more than onnx 1.16 and NumPy are needed here: onnxruntime-training's own environment has these.
"""

from __future__ import annotations

import builtins

import numpy as np
import onnx
from onnx import numpy_helper, parser


def _model(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    dotted = {name: name.replace("_", ".") for name in weights}  # the parser knows no dots
    for node in made.graph.node:
        node.input[:] = [dotted.get(name, name) for name in node.input]
    made.graph.initializer.extend(
        numpy_helper.from_array(value, dotted[name]) for name, value in weights.items()
    )
    onnx.checker.check_model(made, full_check=True)
    return made


def _weight(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)


def mlp(activation: str = "Relu") -> onnx.ModelProto:
    """x [N, 4] -> logits [N, 3], with the parameters of two layers."""
    rng = np.random.default_rng(1)
    return _model(
        f"""mlp (float[N, 4] x) => (float[N, 3] logits) {{
            a = Gemm (x, fc1_weight, fc1_bias)
            h = {activation} (a)
            logits = Gemm (h, fc2_weight, fc2_bias)
        }}""",
        fc1_weight=_weight(rng, 4, 8),
        fc1_bias=_weight(rng, 8),
        fc2_weight=_weight(rng, 8, 3),
        fc2_bias=_weight(rng, 3),
    )


def two_heads() -> onnx.ModelProto:
    """x [N, 4] -> near [N, 3], far [N, 3]."""
    rng = np.random.default_rng(2)
    return _model(
        """two_heads (float[N, 4] x) => (float[N, 3] near, float[N, 3] far) {
            h = MatMul (x, body_weight)
            t = Tanh (h)
            near = Gemm (t, near_weight, near_bias)
            far = MatMul (near, far_weight)
        }""",
        body_weight=_weight(rng, 4, 6),
        near_weight=_weight(rng, 6, 3),
        near_bias=_weight(rng, 3),
        far_weight=_weight(rng, 3, 3),
    )


def cnn() -> onnx.ModelProto:
    """image [N, 1, 6, 6] -> logits [N, 3]."""
    rng = np.random.default_rng(3)
    return _model(
        """cnn (float[N, 1, 6, 6] image) => (float[N, 3] logits) {
            c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (image, conv_weight, conv_bias)
            r = Relu (c)
            p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
            f = Flatten (p)
            logits = Gemm (f, fc_weight, fc_bias)
        }""",
        conv_weight=_weight(rng, 2, 1, 3, 3),
        conv_bias=_weight(rng, 2),
        fc_weight=_weight(rng, 18, 3),
        fc_bias=_weight(rng, 3),
    )


def with_loss() -> onnx.ModelProto:
    """x [N, 4], target [N, 3] -> loss, error [N, 3]: the model has its own loss."""
    rng = np.random.default_rng(4)
    return _model(
        """with_loss (float[N, 4] x, float[N, 3] target) => (float loss, float[N, 3] error) {
            y = MatMul (x, fc_weight)
            error = Sub (y, target)
            squared = Mul (error, error)
            loss = ReduceMean <keepdims = 0> (squared)
        }""",
        fc_weight=_weight(rng, 4, 3),
    )


def batch(size: int = 6, seed: int = 5) -> np.ndarray:
    """Inputs of `mlp`."""
    return np.random.default_rng(seed).normal(size=(size, 4)).astype(np.float32)


def labels(size: int = 6, seed: int = 6) -> np.ndarray:
    """Classes."""
    return np.random.default_rng(seed).integers(0, 3, size)


def targets(size: int = 6, seed: int = 7) -> np.ndarray:
    """Real targets between 0 and 1."""
    return np.random.default_rng(seed).uniform(size=(size, 3)).astype(np.float32)


def names(values) -> list[str]:
    """The names of inputs, outputs or initializers of a model."""
    return [value.name for value in values]


def error_of(function, *parts: str) -> dict[str, object]:
    """What a call raises: the built-in classes of the error, and which texts its message has."""
    try:
        function()
    except Exception as error:
        own = [c.__name__ for c in type(error).__mro__ if c.__module__ == builtins.__name__]
        message = str(error)
        return {"raises": own, "says": {part: part in message for part in parts}}
    return {"raises": []}
