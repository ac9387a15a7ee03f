"""Small models around every operator that onnxruntime-training differentiates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser, shape_inference


@dataclass(frozen=True)
class Layer:
    """A model around one operator, in ONNX's text format; `y` is its output.

    Attributes:
        name: Its name.
        body: Its nodes.
        weights: The shapes of its parameters.
        x: The shape of its input.
        fixed: Initializers that are no parameters.
        opset: Its opset.
        loss: A name of `LossType`.
        runs: Whether onnxruntime-training has the kernels for a CPU.
    """

    name: str
    body: str
    weights: dict[str, tuple[int, ...]] = field(default_factory=lambda: {"w": (4, 6)})
    x: tuple[int, ...] = (3, 4)
    fixed: dict[str, Any] = field(default_factory=dict)
    opset: int = 17
    loss: str = "MSELoss"
    runs: bool = True

    def __str__(self) -> str:
        return self.name

    @property
    def model(self) -> onnx.ModelProto:
        shape = ", ".join(map(str, self.x))
        imports = f'"": {self.opset}, "com.microsoft": 1'
        head = f"<ir_version: 8, opset_import: [{imports}]> g (float[{shape}] x) => (float[] y)"
        model = parser.parse_model(f"{head} {{{self.body}}}")
        rng = np.random.default_rng(len(self.name))
        for name, size in self.weights.items():
            array = rng.uniform(0.2, 0.9, size).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        for name, array in self.fixed.items():
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        # What com.microsoft makes has the type of the hidden layer.
        del model.graph.output[:]
        model.graph.output.add(name="y")
        typed = shape_inference.infer_shapes(model).graph.output[0]
        if not typed.type.tensor_type.elem_type:
            typed = helper.make_tensor_value_info("y", TensorProto.FLOAT, [self.x[0], 6])
        model.graph.output[0].CopyFrom(typed)
        return model


H = "h = MatMul (x, w)"
IMAGE = {"x": (2, 3, 8, 8)}
CONV = {"weights": {"w": (4, 3, 3, 3), "b": (4,)}, **IMAGE}
C = "h = Conv <pads = [1, 1, 1, 1]> (x, w, b)"
NORM = {
    "weights": {"w": (4, 3, 3, 3), "b": (4,), "s": (4,), "o": (4,)},
    "fixed": {"m": np.zeros(4, np.float32), "v": np.ones(4, np.float32)},
    **IMAGE,
}
B = {"weights": {"w": (4, 6), "b": (6,)}}
STATE = np.zeros((1, 2, 5), np.float32)
LAYERS = [
    *(
        Layer(op, f"{H} y = {op} (h)")
        for op in ("Relu", "Tanh", "Sigmoid", "Softmax", "LogSoftmax")
    ),
    *(Layer(f"{op}12", f"{H} y = {op} (h)", opset=12) for op in ("Softmax", "LogSoftmax")),
    *(Layer(op, f"{H} y = {op} (h)") for op in ("Abs", "Cos", "Erf", "Exp", "Log", "Neg", "Sqrt")),
    *(Layer(op, f"{H} y = {op} (h)") for op in ("Sin", "Reciprocal", "Identity", "Flatten")),
    Layer("LeakyRelu", f"{H} y = LeakyRelu <alpha = 0.2> (h)"),
    Layer("Gelu", f"{H} y = Gelu (h)", opset=20),
    *(Layer(f"ms{op}", f"{H} y = com.microsoft.{op} (h)") for op in ("Gelu", "FastGelu")),
    Layer("QuickGelu", f"{H} y = com.microsoft.QuickGelu <alpha = 1.5> (h)"),
    *(
        Layer(f"{op}-bias", f"{H} y = com.microsoft.{op} (h, b)", **B)
        for op in ("FastGelu", "BiasGelu")
    ),
    *(Layer(op, f"{H} y = {op} (h, b)", **B) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")),
    *(Layer(f"{op}12", f"{H} y = {op} (h, b)", **B, opset=12) for op in ("Add", "Div")),
    Layer("Pow", f"{H} y = Pow (h, p)", fixed={"p": np.float32(2)}),
    Layer("Clip", f"{H} y = Clip (h, p)", fixed={"p": np.float32(0.3)}),
    Layer(
        "Where",
        f"{H} z = Neg (h) c = Greater (h, p) y = Where (c, h, z)",
        fixed={"p": np.float32(0)},
    ),
    Layer("Cast", f"{H} z = Cast <to = 1> (h) y = Neg (z)"),
    *(Layer(op, f"{H} y = {op} <axes = [1]> (h)") for op in ("ReduceL2", "ReduceLogSumExp")),
    Layer("ReduceMean", f"{H} y = ReduceMean <axes = [1], keepdims = 0> (h)"),
    Layer("ReduceSum", f"{H} y = ReduceSum <keepdims = 0> (h, a)", fixed={"a": [1]}),
    Layer("Concat", f"{H} y = Concat <axis = 1> (h, x)"),
    Layer("Concat12", f"{H} y = Concat <axis = 1> (h, x)", opset=12),
    Layer(
        "Split",
        f"{H} p, q = Split <axis = 1> (h, s) y = Concat <axis = 1> (q, p)",
        fixed={"s": [2, 4]},
    ),
    Layer("Slice", f"{H} y = Slice (h, s, e, a)", fixed={"s": [1], "e": [4], "a": [1]}),
    Layer("Gather", f"{H} y = Gather <axis = 1> (h, i)", fixed={"i": [1, 1, 3]}),
    Layer(
        "GatherElements",
        f"{H} y = GatherElements <axis = 1> (h, i)",
        fixed={"i": [[1, 1], [0, 3], [5, 2]]},
    ),
    Layer("GatherND", f"{H} y = GatherND (h, i)", fixed={"i": [[1, 1], [1, 1], [2, 0]]}),
    Layer(
        "Scatter",
        f"{H} y = ScatterElements <axis = 1> (h, i, u)",
        fixed={"i": [[0], [1], [2]], "u": np.ones((3, 1), np.float32)},
    ),
    Layer(
        "ScatterND",
        f"{H} y = ScatterND (h, i, u)",
        fixed={"i": [[0, 1]], "u": np.ones(1, np.float32)},
    ),
    Layer("TopK", f"{H} y, i = TopK (h, k)", fixed={"k": [2]}),
    Layer("Pad", f"{H} y = Pad (h, p)", fixed={"p": [0, 1, 0, 1]}),
    Layer("Tile", f"{H} y = Tile (h, k)", fixed={"k": [2, 1]}),
    Layer("Tile12", f"{H} y = Tile (h, k)", fixed={"k": [2, 1]}, opset=12),
    Layer("Expand", f"{H} y = Expand (h, k)", fixed={"k": [2, 3, 6]}),
    Layer("Reshape", f"{H} y = Reshape (h, k)", fixed={"k": [6, 3]}),
    Layer("Transpose", f"{H} y = Transpose <perm = [1, 0]> (h)"),
    Layer("Squeeze", f"{H} u = Unsqueeze (h, k) n = Neg (u) y = Squeeze (n, k)", fixed={"k": [1]}),
    Layer("Trilu", f"{H} y = Trilu (h)"),
    Layer("Gemm", "y = Gemm <alpha = 0.5, transB = 1> (x, w, b)", {"w": (6, 4), "b": (6,)}),
    Layer(
        "MatMul3d", "h = MatMul (x, w) y = MatMul (h, v)", {"w": (4, 6), "v": (2, 6, 3)}, (2, 5, 4)
    ),
    Layer("Dropout", f"{H} y, m = Dropout (h, r, t)", fixed={"r": np.float32(0), "t": np.True_}),
    Layer(
        "LayerNormalization",
        f"{H} y, m, i = LayerNormalization (h, s, b)",
        {"w": (4, 6), "s": (6,), "b": (6,)},
    ),
    Layer(
        "SimplifiedLayerNormalization",
        f"{H} q = Pow (h, p) m = ReduceMean <axes = [-1]> (q) e = Add (m, f) r = Sqrt (e) "
        "d = Div (h, r) y = Mul (d, s)",
        {"w": (4, 6), "s": (6,)},
        fixed={"p": np.float32(2), "f": np.float32(1e-5)},
    ),
    # What its optimizers fuse before they differentiate.
    Layer(
        "LayerNormalization13",
        f"{H} m = ReduceMean <axes = [-1]> (h) c = Sub (h, m) q = Pow (c, p) "
        "v = ReduceMean <axes = [-1]> (q) e = Add (v, f) r = Sqrt (e) d = Div (c, r) "
        "t = Mul (d, s) y = Add (t, b)",
        {"w": (4, 6), "s": (6,), "b": (6,)},
        fixed={"p": np.float32(2), "f": np.float32(1e-5)},
        opset=13,
    ),
    Layer(
        "Gelu13",
        f"{H} a = Div (h, k) e = Erf (a) o = Add (e, u) g = Mul (h, o) y = Mul (g, f)",
        fixed={"k": np.sqrt(np.float32(2)), "u": np.float32(1), "f": np.float32(0.5)},
        opset=13,
    ),
    Layer(
        "QuickGelu17",
        f"{H} a = Mul (h, k) s = Sigmoid (a) y = Mul (h, s)",
        fixed={"k": np.float32(1.702)},
    ),
    Layer("Conv", f"{C} y = Relu (h)", **CONV),
    Layer("MaxPool", f"{C} y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (h)", **CONV),
    Layer(
        "AveragePool", f"{C} y = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (h)", **CONV
    ),
    Layer("GlobalAveragePool", f"{C} y = GlobalAveragePool (h)", **CONV),
    Layer(
        "ConvTranspose",
        "y = ConvTranspose (x, w, b)",
        {"w": (3, 4, 3, 3), "b": (4,)},
        **IMAGE,
        runs=False,
    ),
    Layer(
        "Resize",
        f'{C} y = Resize <mode = "linear"> (h, , k)',
        **CONV,
        fixed={"k": np.float32([1, 1, 2, 2])},
        runs=False,
    ),
    Layer("BatchNormalization9", f"{C} y = BatchNormalization (h, s, o, m, v)", **NORM, opset=9),
    Layer("BatchNormalization13", f"{C} y = BatchNormalization (h, s, o, m, v)", **NORM, opset=13),
    Layer(
        "LSTM",
        "y, h, c = LSTM <hidden_size = 5> (x, w, r, b, , s, s)",
        {"w": (1, 20, 4), "r": (1, 20, 5), "b": (1, 40)},
        (7, 2, 4),
        {"s": STATE},
    ),
    Layer(
        "GRU",
        "y, h = GRU <hidden_size = 5> (x, w, r, b, , s)",
        {"w": (1, 15, 4), "r": (1, 15, 5), "b": (1, 30)},
        (7, 2, 4),
        {"s": STATE},
    ),
    Layer("CrossEntropyLoss", f"{H} y = Identity (h)", loss="CrossEntropyLoss"),
    Layer("BCEWithLogitsLoss", f"{H} y = Identity (h)", loss="BCEWithLogitsLoss"),
    Layer("L1Loss", f"{H} y = Identity (h)", loss="L1Loss"),
]
