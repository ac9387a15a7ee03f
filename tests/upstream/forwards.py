"""Forward models in forms that onnxruntime-training 1.19.2 accepts, and what they are trained on.

It needs NumPy and onnx alone: the script that has onnxruntime-training generate artifacts of these
models, and the tests that train them, share it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from onnx import ModelProto, numpy_helper, parser

STEPS = 12


@dataclass(frozen=True)
class Forward:
    """A forward model and what it is trained on.

    Attributes:
        name: Its name.
        text: The model without its weights, in ONNX's text format.
        weights: The shapes of its parameters.
        loss: The loss: a name of `LossType`.
        optimizer: The optimizer: a name of `OptimType`.
        x: The shape of a batch.
        target: How many classes there are, or the shape of the targets.
        rate: The learning rate.
        fixed: Initializers that are no parameters.
        frozen: Parameters that are not trained.
        prefix: What the names of its files begin with.
    """

    name: str
    text: str
    weights: dict[str, tuple[int, ...]]
    loss: str
    optimizer: str
    x: tuple[int, ...]
    target: int | tuple[int, ...]
    rate: float = 0.01
    fixed: dict[str, np.ndarray] = field(default_factory=dict)
    frozen: tuple[str, ...] = ()
    prefix: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def trained(self) -> list[str]:
        return [name for name in self.weights if name not in self.frozen]

    @property
    def model(self) -> ModelProto:
        """The model with its weights."""
        model = parser.parse_model(self.text)
        rng = np.random.default_rng(sum(map(ord, self.name)))
        for name, shape in self.weights.items():
            bound = 1 / np.sqrt(np.prod(shape[1:]) or 1)
            array = rng.uniform(-bound, bound, shape).astype(np.float32)
            array += np.float32(1) if name.endswith("scale") else np.float32(0)
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        for name, array in self.fixed.items():
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        return model

    @property
    def training_form(self) -> ModelProto:
        """The model as blockdsl trains it as well: there a BatchNormalization says that it trains.

        onnxruntime-training trains every one, on the statistics of the batch.
        """
        model = self.model
        for node in model.graph.node:
            if node.op_type == "BatchNormalization":
                node.output.extend(["new_mean", "new_var", "saved_mean", "saved_var"])
        return model

    def files(self, folder: Path) -> dict[str, Path]:
        """Its artifacts, by what they are."""
        names = {kind: f"{kind}_model.onnx" for kind in ("training", "eval", "optimizer")}
        names |= {kind: kind for kind in ("checkpoint", "nominal_checkpoint")}
        return {kind: folder / f"{self.prefix}{name}" for kind, name in names.items()}

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """The batch of a step; every third is the first again."""
        rng = np.random.default_rng(step % 3)
        x = rng.normal(size=self.x).astype(np.float32)
        if isinstance(self.target, int):
            return x, rng.integers(0, self.target, self.x[0])
        return x, rng.normal(size=self.target).astype(np.float32)


def _text(name: str, x: str, body: str, *, y: str = "N, 3", opset: int = 17) -> str:
    head = f'<ir_version: 8, opset_import: ["": {opset}]>'
    return f"{head} {name} (float[{x}] x) => (float[{y}] y) {{{body}}}"


_ATTENTION = """
    q = MatMul (x, wq)
    k = MatMul (x, wk)
    v = MatMul (x, wv)
    kt = Transpose <perm = [0, 2, 1]> (k)
    s = MatMul (q, kt)
    scaled = Div (s, root)
    p = Softmax <axis = -1> (scaled)
    mixed = MatMul (p, v)
    projected = MatMul (mixed, wo)
    added = Add (x, projected)
    normed, mean1, root1 = LayerNormalization <axis = -1> (added, ln1_scale, ln1_bias)
    up = MatMul (normed, w1)
    biased = Add (up, b1)
    active = Relu (biased)
    down = MatMul (active, w2)
    summed = Add (normed, down)
    out, mean2, root2 = LayerNormalization <axis = -1> (summed, ln2_scale, ln2_bias)
    first = Gather <axis = 1> (out, zero)
    y = Gemm (first, head, head_bias)
"""
_NORMED = """
    c = Conv <pads = [1, 1, 1, 1]> (x, conv_weight)
    n = BatchNormalization (c, bn_scale, bn_bias, running_mean, running_var)
    r = Relu (n)
    p = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (r)
    g = GlobalAveragePool (p)
    f = Flatten (g)
    y = Gemm (f, head, head_bias)
"""

FORWARDS = [
    Forward(
        "mlp",
        _text(
            "mlp",
            "N, 6",
            "a = MatMul (x, w1) b = Add (a, b1) t = Tanh (b) c = Gemm (t, w2, b2) "
            "g = Sigmoid (c) y = Gemm (g, w3, b3)",
        ),
        {"w1": (6, 8), "b1": (8,), "w2": (8, 8), "b2": (8,), "w3": (8, 3), "b3": (3,)},
        "CrossEntropyLoss",
        "AdamW",
        (16, 6),
        3,
        frozen=("b2",),
        prefix="small_",
    ),
    Forward(
        "cnn",
        _text(
            "cnn",
            "N, 2, 8, 8",
            "a = Conv <pads = [1, 1, 1, 1]> (x, conv1_weight, conv1_bias) r = Relu (a) "
            "p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r) "
            "d = Conv <group = 2> (p, conv2_weight, conv2_bias) l = LeakyRelu <alpha = 0.1> (d) "
            "f = Flatten (l) y = Gemm (f, head, head_bias)",
        ),
        {
            "conv1_weight": (4, 2, 3, 3),
            "conv1_bias": (4,),
            "conv2_weight": (4, 2, 3, 3),
            "conv2_bias": (4,),
            "head": (16, 3),
            "head_bias": (3,),
        },
        "CrossEntropyLoss",
        "SGD",
        (8, 2, 8, 8),
        3,
        rate=0.05,
    ),
    Forward(
        "batch_norm",
        _text("batch_norm", "8, 2, 8, 8", _NORMED, y="8, 3", opset=13),
        {
            "conv_weight": (4, 2, 3, 3),
            "bn_scale": (4,),
            "bn_bias": (4,),
            "head": (4, 3),
            "head_bias": (3,),
        },
        "CrossEntropyLoss",
        "AdamW",
        (8, 2, 8, 8),
        3,
        fixed={"running_mean": np.zeros(4, np.float32), "running_var": np.ones(4, np.float32)},
    ),
    Forward(
        "transformer",
        _text("transformer", "N, 5, 8", _ATTENTION),
        {
            **dict.fromkeys(("wq", "wk", "wv", "wo"), (8, 8)),
            "ln1_scale": (8,),
            "ln1_bias": (8,),
            "w1": (8, 16),
            "b1": (16,),
            "w2": (16, 8),
            "ln2_scale": (8,),
            "ln2_bias": (8,),
            "head": (8, 3),
            "head_bias": (3,),
        },
        "CrossEntropyLoss",
        "AdamW",
        (6, 5, 8),
        3,
        fixed={"root": np.float32(np.sqrt(8)).reshape(()), "zero": np.array(0)},
    ),
    Forward(
        "lstm",
        _text(
            "lstm",
            "7, 4, 3",
            "s, h, c = LSTM <hidden_size = 5> (x, w, r, b, , h0, c0) "
            "q = Squeeze (h, axis) y = Gemm (q, head, head_bias)",
            y="4, 2",
        ),
        {"w": (1, 20, 3), "r": (1, 20, 5), "b": (1, 40), "head": (5, 2), "head_bias": (2,)},
        "MSELoss",
        "AdamW",
        (7, 4, 3),
        (4, 2),
        fixed={
            "h0": np.zeros((1, 4, 5), np.float32),
            "c0": np.zeros((1, 4, 5), np.float32),
            "axis": np.array([0]),
        },
    ),
    Forward(
        "gru",
        _text(
            "gru",
            "7, 4, 3",
            "s, h = GRU <hidden_size = 5, linear_before_reset = 1> (x, w, r, b, , h0) "
            "q = Squeeze (s, axis) z = Slice (q, begin, end) l = Squeeze (z, first) "
            "y = Gemm (l, head, head_bias)",
            y="4, 2",
        ),
        {"w": (1, 15, 3), "r": (1, 15, 5), "b": (1, 30), "head": (5, 2), "head_bias": (2,)},
        "L1Loss",
        "SGD",
        (7, 4, 3),
        (4, 2),
        rate=0.05,
        fixed={
            "h0": np.zeros((1, 4, 5), np.float32),
            "axis": np.array([1]),
            "begin": np.array([6]),
            "end": np.array([7]),
            "first": np.array([0]),
        },
    ),
]
