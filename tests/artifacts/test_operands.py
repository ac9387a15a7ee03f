"""Operands of elementwise arithmetic: what they meet and their values say what they are."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from blockdsl.artifacts.roles import roles

rng = np.random.default_rng(1)


def random(*shape):
    return rng.normal(size=shape).astype(np.float32)


def positions(count, size, first=0):
    """The usual table of sines and cosines."""
    angles = np.arange(first, first + count)[:, None] / 10_000 ** (np.arange(0, size, 2) / size)
    table = np.empty((count, size), np.float32)
    table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles)
    return table


def fourier(size):
    """A windowed Fourier basis: cosines, then sines."""
    angles = 2 * np.pi * np.outer(np.arange(size // 2 + 1), np.arange(size)) / size
    return (np.hanning(size + 1)[:-1] * np.concatenate([np.cos(angles), np.sin(angles)])).astype(
        np.float32
    )


def bands(count, size):
    """Triangles side by side, as of mel filters."""
    centres = np.linspace(0, size - 1, count + 2)[1:-1]
    distances = np.abs(np.arange(size) - centres[:, None])
    return np.maximum(0, 1 - distances / (size / (count + 1))).astype(np.float32)


MASK = np.triu(np.full((6, 6), -np.inf, np.float32), 1)
FILL = np.triu(np.full((6, 6), -1e9, np.float32), 1)
MEAN = np.array([0.485, 0.456, 0.406], np.float32).reshape(3, 1, 1)
STD = np.array([0.229, 0.224, 0.225], np.float32).reshape(3, 1, 1)

CASES = {
    # name: nodes as "y = Op (a, b)", the constants, and the kind of the first of them
    "bias of a product": ("h = MatMul (x, v) y = Add (h, w)", random(6), "bias"),
    "bias of a folded product": ("h = MatMul (x, v) y = Add (h, val_3)", random(6), "bias"),
    "bias of one output": ("h = Gemm (x, v, w) y = Relu (h)", random(1), "bias"),
    "bias after a reshape": (
        "h = Conv (x, v) r = Transpose (h) y = Add (r, val_3)",
        random(6),
        "bias",
    ),
    "scale of a norm": (
        "q = Mul (x, x) m = ReduceMean (q) d = Sqrt (m) n = Div (x, d) y = Mul (n, w)",
        np.ones(6, np.float32),
        "scale",
    ),
    "folded scale of a norm": (
        "h = InstanceNormalization (x, v, u) r = Reshape (h, s) y = Mul (r, val_1)",
        random(6, 1, 1),
        "scale",
    ),
    "layer scale": ("h = MatMul (x, v) r = Relu (h) y = Mul (r, gamma)", random(6), "scale"),
    "equal layer scale": (
        "h = MatMul (x, v) r = Relu (h) y = Mul (r, gamma)",
        np.full(6, 1e-6, np.float32),
        "scale",
    ),
    "weight norm": (
        "a = ReduceL2 (v) b = Div (v, a) c = Mul (b, w) y = Conv (x, c)",
        random(6, 1, 1),
        "weight",
    ),
    "low rank update": (
        "a = MatMul (w, u) b = Add (v, a) y = MatMul (x, b)",
        random(6, 2),
        "weight",
    ),
    "power iteration": (
        "a = MatMul (v, w) b = Div (v, a) y = MatMul (x, b)",
        random(6),
        "statistic",
    ),
    "learned positions": (
        "h = MatMul (x, v) r = Relu (h) y = Add (r, w)",
        random(8, 6),
        "embedding",
    ),
    "positions on an input": ("a = Add (x, w) y = MatMul (a, v)", random(8, 6), "embedding"),
    "a new table of zeros": (
        "h = MatMul (x, v) r = Relu (h) y = Add (r, w)",
        np.zeros((8, 6), np.float32),
        "embedding",
    ),
    "relative positions": ("a = MatMul (x, x) y = Add (a, w)", random(1, 2, 6, 6), "embedding"),
    "class token": (
        "e = Expand (w, s) a = Concat <axis=1> (e, x) y = Identity (a)",
        random(1, 1, 6),
        "token",
    ),
    "mask token": ("y = Where (x, w, x)", np.zeros(6, np.float32), "token"),
    "mixing weights": (
        "h = MatMul (x, v) r = Relu (h) p = Softmax (w) y = Mul (r, p)",
        random(3),
        "scale",
    ),
    "decay": (
        "h = MatMul (x, v) r = Relu (h) e = Exp (w) n = Neg (e) y = Mul (r, n)",
        random(6, 2),
        "scale",
    ),
    "temperature": ("h = MatMul (x, v) e = Exp (w) y = Mul (h, e)", np.float32(2.6), "scalar"),
    "gate": ("h = MatMul (x, v) r = Sigmoid (w) y = Mul (h, r)", np.float32(0), "scalar"),
    "exponent of a pooling": (
        "h = Conv (x, v) r = Relu (h) y = Pow (r, w)",
        np.array([3], np.float32),
        "scalar",
    ),
    "infinite mask": ("a = MatMul (x, x) y = Add (a, w)", MASK, "mask"),
    "filled mask": ("a = MatMul (x, x) y = Add (a, w)", FILL, "mask"),
    "zero-one mask": ("h = Relu (x) y = Mul (h, w)", np.tril(np.ones((6, 6), np.float32)), "mask"),
    "mask of a weight": (
        "a = Mul (v, w) y = MatMul (x, a)",
        np.tril(np.ones((6, 6), np.float32)),
        "mask",
    ),
    "mask of attention": ("y = Attention (x, x, x, w)", MASK, "mask"),
    "scale of attention": ("a = MatMul (x, x) y = Mul (a, w)", np.float32(0.125), "constant"),
    "epsilon": ("a = ReduceMean (x) b = Add (a, w) y = Sqrt (b)", np.float32(1e-5), "constant"),
    "rate of a weight": ("a = Mul (v, w) y = MatMul (x, a)", np.float32(0.1), "constant"),
    "fixed positions": ("h = MatMul (x, v) r = Relu (h) y = Add (r, w)", positions(32, 8), "table"),
    "fixed positions on a product": ("h = MatMul (x, v) y = Add (h, w)", positions(32, 8), "table"),
    "looked up positions": ("y = Gather (w, i)", positions(32, 8, 2), "table"),
    "rotary cosines": ("h = MatMul (x, v) y = Mul (h, w)", positions(16, 8), "table"),
    "folded rotary cosines of one frequency": (
        "h = MatMul (x, v) y = Mul (h, unsqueeze_14)",
        np.cos(np.arange(9, dtype=np.float32))[:, None].repeat(2, axis=1),
        "table",
    ),
    "rotary frequencies": (
        "p = Cast <to=1> (i) a = MatMul (w, p) b = Cos (a) h = Relu (x) y = Mul (h, b)",
        random(4, 1),
        "table",
    ),
    "frequencies of constant positions": (
        "a = MatMul (w, u) b = Cos (a) h = Relu (x) y = Mul (h, b)",
        random(4, 1),
        "table",
    ),
    "frequencies of time steps": (
        "a = Mul (x, w) b = Sin (a) y = MatMul (b, v)",
        random(4) ** 2,
        "table",
    ),
    "slopes of positions": ("p = Cast <to=1> (i) y = Mul (p, w)", random(2, 1, 1), "table"),
    "grid": (
        "h = Conv (x, v, b) r = Reshape (h, s) t = Sigmoid (r) y = Add (t, w)",
        np.stack(np.meshgrid(np.arange(8), np.arange(8)), -1).astype(np.float32),
        "table",
    ),
    "anchors": (
        "h = Conv (x, v, b) t = Sigmoid (h) y = Mul (t, w)",
        np.float32([[10, 13], [16, 30], [33, 23]]).reshape(3, 1, 1, 2),
        "table",
    ),
    "folded anchors": (
        "h = Conv (x, v, b) t = Sigmoid (h) y = Mul (t, val_7)",
        np.float32([[1.25, 1.625], [2, 3.75], [4.125, 2.875]]).reshape(3, 1, 1, 2),
        "constant",
    ),
    "looked up bias with a mask of positions": (
        "b = Gather (w, j) p = Cast <to=1> (i) m = Add (b, p) a = MatMul (x, x) y = Add (a, m)",
        random(9, 6),
        "embedding",
    ),
    "learned query": (
        "q = MatMul (w, v) k = MatMul (x, u) y = MatMul (k, q)",
        random(1, 1, 6),
        "weight",
    ),
    "coordinates through layers": (
        "q = MatMul (w, v) r = Relu (q) a = MatMul (x, x) y = Add (a, r)",
        np.stack(np.meshgrid(*[np.float32([-1, -0.8, 0, 0.8, 1])] * 2, indexing="ij"), -1),
        "table",
    ),
    "mel filters": ("h = Relu (x) y = MatMul (h, w)", bands(20, 128).T, "table"),
    "mean of an input": ("a = Sub (x, w) y = Conv (a, v)", MEAN, "preprocessing"),
    "deviation of an input": (
        "a = Sub (x, u) b = Div (a, w) y = Conv (b, v)",
        STD,
        "preprocessing",
    ),
    "inverse deviation": (
        "a = Sub (x, u) b = Mul (a, w) y = Conv (b, v)",
        1 / STD,
        "preprocessing",
    ),
    "after a division by 255": (
        "a = Div (x, c) b = Sub (a, w) y = Conv (b, v)",
        MEAN,
        "preprocessing",
    ),
    "centres of clusters": (
        "a = Sub (x, w) b = Mul (a, a) y = MatMul (b, v)",
        random(5, 6),
        "embedding",
    ),
    "a model that is a scale": ("y = Mul (x, w)", random(6), "scale"),
    "a full scale of an input": ("a = Mul (x, w) y = Conv (a, v)", random(4, 5, 5), "scale"),
    "a weight whose last rows are alike": (
        "h = Relu (x) y = MatMul (h, w)",
        np.concatenate([random(10, 40), np.repeat(10 * random(2, 40), [1, 29], axis=0)]),
        "weight",
    ),
    "a weight with a huge column": (
        "h = Relu (x) y = MatMul (h, w)",
        random(40, 40) * np.where(np.arange(40) == 3, 100, 1).astype(np.float32),
        "weight",
    ),
    "bound": ("y = Max (x, w)", random(6), "constant"),
    "nothing": ("y = Relu (x)", random(6), "unused"),
}


def build(text, array, producer=""):
    """The model, and the name of its first constant."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 23]>\n'
        f"g (float[N, M] x, int64[N] i) => (float[N, M] y) {{ {text} }}"
    )
    model.producer_name = producer
    made = {"x", "i", ""} | {o for node in model.graph.node for o in node.output}
    read = {name: None for node in model.graph.node for name in node.input if name not in made}
    helpers = {
        "s": np.array([1, 6]),
        "c": np.float32(255),
        "u": MEAN,
        "b": random(6),
        "j": np.array([0, 3, 1]),
    }
    target = next((n for n in read if n not in "vubscj"), "w")
    for name in read | {target: None}:
        value = array if name == target else helpers.get(name, random(6, 6))
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return model, target


@pytest.mark.parametrize("name", CASES)
def test_operands(name):
    # Masks aside, every float tensor with a rank was trained, and none that had a name like val_3.
    text, array, kind = CASES[name]
    model, target = build(text, array)
    assert roles(model)[target].kind == kind


@pytest.mark.parametrize(
    ("producer", "name", "kind"),
    [
        ("pytorch", "alpha", "scalar"),  # its exporters name parameters alone
        ("pytorch", "val_3", "constant"),
        ("pytorch", "/block/Constant_output_0", "constant"),
        ("pytorch", "onnx::Mul_12", "constant"),
        ("pytorch", "scalar_tensor_default", "constant"),
        ("", "alpha", "constant"),
    ],
)
def test_a_scalar_without_rank_is_told_by_its_name_at_last(producer, name, kind):
    model, target = build("h = Relu (x) y = Mul (h, w)", np.float32(0.5), producer)
    model.graph.node[1].input[1] = model.graph.initializer[0].name = name
    assert target == "w"
    assert roles(model)[name].kind == kind


def test_a_fourier_basis_in_a_convolution_is_trained_and_pointed_out():
    # A slot decides: learned front ends begin like this. The summary says how to leave it out.
    model, _ = build("y = Conv (x, w)", fourier(16)[:, None])
    role = roles(model)["w"]
    assert (role.kind, role.resembles != "") == ("weight", True)


def test_ones_and_zeros_that_an_operator_requires_are_no_parameters():
    # GroupNorm is exported as InstanceNormalization with ones and zeros, and then its own scale.
    ones, zeros = np.ones(2, np.float32), np.zeros(2, np.float32)
    for named, kinds in ((True, ["scale", "bias"]), (False, ["neutral", "neutral"])):
        names = ["norm.weight", "norm.bias"] if named else ["val_8", "val_11"]
        step = helper.make_node("InstanceNormalization", ["x", *names], ["y"])
        graph = helper.make_graph(
            [step],
            "g",
            [helper.make_tensor_value_info("x", 1, ["N", 2, 5])],
            [helper.make_tensor_value_info("y", 1, ["N", 2, 5])],
            [numpy_helper.from_array(a, n) for a, n in zip((ones, zeros), names, strict=True)],
        )
        assert [role.kind for role in roles(helper.make_model(graph)).values()] == kinds


def test_integers_that_stand_for_a_weight():
    model, _ = build("d = DequantizeLinear (q, k, z) y = MatMul (x, d)", np.float32(0.1))
    del model.graph.initializer[:]
    for name, value in (("q", np.ones((6, 6), np.int8)), ("k", np.float32(0.1)), ("z", np.int8(0))):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    kinds = {name: role.kind for name, role in roles(model).items()}
    assert kinds == {"q": "integer weight", "k": "quantization"}


def test_integers_of_shapes_are_no_weights():
    # Shapes that Gather takes parts of were warned of as weights.
    model, _ = build("d = Gather (q, i) y = Expand (x, d)", np.float32(0.1))
    del model.graph.initializer[:]
    model.graph.initializer.append(numpy_helper.from_array(np.array([2, 3]), "q"))
    assert roles(model) == {}
