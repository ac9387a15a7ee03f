"""No optimizer of the runtime changes what a training graph computes, in any opset.

Stock ONNX Runtime removes a Dropout whose mask nothing reads although it trains: a head trained on
a frozen body had none. It makes one of two Bernoullis, and shares constants that a
BatchNormalization in training mode overwrites.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import blockdsl
from blockdsl.api import CheckpointState, Module, set_seed
from blockdsl.backend.ort_format import convert_to_ort
from blockdsl.backend.providers import CPU
from blockdsl.backend.session.load import open_session
from tests.engines import loads_opset
from tests.runs import generate, normal

LEVELS = ["DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_ALL"]
OPSETS = [o for o in range(12, onnx.defs.onnx_opset_version() + 1) if loads_opset(o)]
RATIO = "float r = {0.5}, bool t = {1}"
STATISTICS = (
    "float[3] s = {1, 2, 3}, float[3] b = {1, 2, 3}, float[3] m = {0, 0, 0}, float[3] v = {1, 2, 3}"
)
WEIGHT = "float[3, 3, 1, 1] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}"
VECTOR = "(float[600] x) => (float[600] y)"
IMAGE = "(float[4, 3, 2, 2] x) => (float[4, 3, 2, 2] y)"
NORMALIZE = "BatchNormalization<training_mode = 1>"


def options_of(level):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    return options


def outputs_at(level, model, feeds, runs=1):
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    session = open_session(copied, "model", CPU, options_of(level)).session
    return [session.run(None, feeds) for _ in range(runs)]


PROGRAMS = {
    # name: (first opset, signature, constants, nodes)
    "dropout": (12, VECTOR, RATIO, "n = Abs(x) d = Dropout<seed = 3>(n, r, t) y = Neg(d)"),
    "dropout with a mask": (
        *(12, VECTOR, RATIO),
        "n = Abs(x) d, k = Dropout<seed = 3>(n, r, t) y = Neg(d)",
    ),
    "dropout without a ratio": (
        *(12, VECTOR, "bool t = {1}"),
        'n = Abs(x) d = Dropout<seed = 3>(n, "", t) y = Neg(d)',
    ),
    "dropout of ratio 0": (
        *(12, VECTOR, "float r = {0}, bool t = {1}"),
        "n = Abs(x) d = Dropout(n, r, t) y = Neg(d)",
    ),
    "dropout whose mode is computed": (
        *(13, VECTOR, "float r = {0.5}, float one = {1}"),
        "n = Abs(x) h = ReduceMax<keepdims = 0>(n) t = Greater(h, one)"
        " d = Dropout<seed = 3>(n, r, t) y = Neg(d)",
    ),
    "dropout of constants": (
        *(12, VECTOR, f"{RATIO}, int64[1] k = {{600}}"),
        "n = ConstantOfShape(k) o = Exp(n) d = Dropout<seed = 3>(o, r, t) y = Mul(d, x)",
    ),
    "dropout that does not train": (
        *(12, VECTOR, "float r = {0.5}, bool t = {0}"),
        "n = Abs(x) d = Dropout<seed = 3>(n, r, t) y = Neg(d)",
    ),
    "dropout in a branch": (
        *(12, VECTOR, f"{RATIO}, bool yes = {{1}}"),
        "y = If(yes) <then_branch = a () => (float[600] p) {"
        " n = Abs(x) d = Dropout<seed = 3>(n, r, t) p = Neg(d) },"
        " else_branch = c () => (float[600] q) { q = Neg(x) }>",
    ),
    "dropout in a loop": (
        *(13, VECTOR, f"{RATIO}, int64 k = {{2}}, bool yes = {{1}}"),
        "y = Loop(k, yes, x) <body = a (int64 i, bool c, float[600] h) => (bool e, float[600] p) {"
        " e = Identity(c) n = Abs(h) d = Dropout<seed = 3>(n, r, t) p = Neg(d) }>",
    ),
    "dropout of a sum": (
        *(12, VECTOR, f"{RATIO}, float[1] b = {{2}}"),
        "n = Add(x, b) d = Dropout<seed = 3>(n, r, t) y = Add(d, x)",
    ),
    "dropout of a softmax": (
        *(13, "(float[20, 30] x) => (float[20, 20] y)", RATIO),
        "n = Softmax(x) d = Dropout<seed = 3>(n, r, t) w = Transpose(x) y = MatMul(d, w)",
    ),
    "batch normalization": (
        *(14, IMAGE.replace(" y)", " y, float[3] m2, float[3] v2)"), STATISTICS),
        f"n = Abs(x) y, m2, v2 = {NORMALIZE}(n, s, b, m, v)",
    ),
    "batch normalization whose statistics nothing reads": (
        *(14, IMAGE, STATISTICS),
        f"n = Abs(x) z, m2, v2 = {NORMALIZE}(n, s, b, m, v) y = Neg(z)",
    ),
    "batch normalization of a convolution": (
        *(14, IMAGE, f"{STATISTICS}, {WEIGHT}"),
        f"n = Conv(x, w) z, m2, v2 = {NORMALIZE}(n, s, b, m, v) y = Neg(z)",
    ),
    "batch normalization of a product": (
        *(14, "(float[4, 3] x) => (float[4, 3] y)", STATISTICS),
        f"t = Transpose(x) n = MatMul(x, t) o = MatMul(n, x)"
        f" z, m2, v2 = {NORMALIZE}(o, s, b, m, v) y = Neg(z)",
    ),
    "batch normalization in a branch": (
        *(14, IMAGE, f"{STATISTICS}, bool yes = {{1}}"),
        "y = If(yes) <then_branch = a () => (float[4, 3, 2, 2] p) {"
        f" z, m2, v2 = {NORMALIZE}(x, s, b, m, v) p = Neg(z) }},"
        " else_branch = c () => (float[4, 3, 2, 2] q) { q = Neg(x) }>",
    ),
    "batch normalization in inference": (
        *(14, IMAGE, f"{STATISTICS}, {WEIGHT}"),
        "n = Conv(x, w) y = BatchNormalization(n, s, b, m, v)",
    ),
    "instance normalization": (
        *(12, IMAGE, STATISTICS),
        "n = Abs(x) y = InstanceNormalization(n, s, b)",
    ),
    "identities": (12, VECTOR, "", "a = Identity(x) n = Abs(a) c = Identity(n) y = Identity(c)"),
    "gelu": (
        *(12, VECTOR, "float r = {1.4142135}, float one = {1}, float h = {0.5}"),
        "d = Div(x, r) e = Erf(d) p = Add(e, one) q = Mul(x, p) y = Mul(q, h)",
    ),
    "random numbers": (
        *(12, VECTOR, "int64[1] k = {600}"),
        "n = ConstantOfShape(k) p = RandomNormalLike<seed = 3.0>(n)"
        " q = RandomUniform<seed = 4.0, shape = [600]>() o = Add(p, q) y = Mul(o, x)",
    ),
}
LAST = {"random numbers": 21}  # no runtime has kernels of the newer operators
CASES = [
    (name, opset)
    for name, (first, *_) in PROGRAMS.items()
    for opset in OPSETS
    if first <= opset <= LAST.get(name, opset)
]


@pytest.mark.parametrize(("name", "opset"), CASES)
def test_every_level_of_optimization_computes_the_same(name, opset):
    _, signature, constants, nodes = PROGRAMS[name]
    model = parse(opset, signature, constants, nodes)
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": np.random.default_rng(0).normal(size=shape).astype(np.float32)}
    (expected,) = outputs_at("DISABLE_ALL", model, feeds)
    for level in LEVELS[1:]:
        (outputs,) = outputs_at(level, model, feeds)
        for a, b in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=level)


DRAWS = {
    # two draws of the same input, which must not become one
    "Dropout": (12, RATIO, "Dropout(n, r, t)"),
    "Bernoulli": (15, "", "Bernoulli(p)"),
    "RandomNormalLike": (12, "", "RandomNormalLike(n)"),
    "RandomUniformLike": (12, "", "RandomUniformLike(n)"),
    "RandomNormal": (12, "", "RandomNormal<shape = [600]>()"),
    "RandomUniform": (12, "", "RandomUniform<shape = [600]>()"),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("name", "opset"),
    [(n, o) for n, (first, *_) in DRAWS.items() for o in OPSETS if first <= o <= 21],
)
def test_equal_draws_stay_two_and_are_not_constant(name, opset, level):
    _, constants, call = DRAWS[name]
    nodes = "k = Shape(x) n = ConstantOfShape<value = float[1] {1}>(k) h = Mul(n, half) "
    nodes += f"p = Identity(h) a = {call} b = {call} d = Sub(a, b) y = Add(d, x)"
    model = parse(opset, VECTOR, f"float half = {{0.5}}, {constants}".rstrip(", "), nodes)
    feeds = {"x": np.zeros(600, np.float32)}
    (first,), (second,) = outputs_at(level, model, feeds, runs=2)
    assert np.mean(first != 0) > 0.3
    assert np.mean(first != second) > 0.3


def parse(opset, signature, constants, nodes):
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]>'
        f"g {signature} <{constants}> {{ {nodes} }}".replace("<>", "")
    )


DROP = "Dropout(a, r, t)"
PARTS = {
    "dropout": f"a = Identity(h) d = {DROP} dropped = Identity(d)",
    "two dropouts": f"a = Identity(h) c = {DROP} e = Relu(c)"
    " d = Dropout(e, q, t) dropped = Relu(d)",
    "of a sum": f"a = Add(h, one) d = {DROP} dropped = Mul(d, one)",
    "in a branch": "dropped = If(t) <then_branch = then () => (float[N, 400] p) {"
    f" a = Abs(h) d = {DROP} p = Relu(d) }},"
    " else_branch = otherwise () => (float[N, 400] o) { o = Neg(h) }>",
    "in a loop": "dropped = Loop(trips, t, h) <body = step (int64 i, bool c, float[N, 400] s)"
    f" => (bool e, float[N, 400] p) {{ e = Identity(c) a = Abs(s) d = {DROP} p = Relu(d) }}>",
    "in a function": "dropped = own.Drop(h)",
}
FUNCTION = (
    '<domain: "own", opset_import: ["" : {opset}]> Drop (h) => (dropped) {{'
    " r = Constant<value = float {{0.5}}>() t = Constant<value = bool {{1}}>()"
    " a = Abs(h) d = Dropout(a, r, t) dropped = Relu(d) }}"
)


def network(part, opset):
    """A body, a part that drops, and a head."""
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}, "own" : 1]>'
        "g (float[N, 8] x) => (float[N, 3] y, float[N, 400] dropped)"
        f" <{RATIO}, float q = {{0.1}}, float[1] one = {{1}}, int64 trips = {{1}}> {{"
        f" h = MatMul(x, body) {part} y = MatMul(dropped, head) }}"
        + (FUNCTION.format(opset=opset) if "own." in part else "")
    )
    rng = np.random.default_rng(0)
    for name, shape in {"body": (8, 400), "head": (400, 3)}.items():
        value = rng.uniform(0.1, 0.5, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    return model


class OfTheFirst(blockdsl.Block):
    """A loss of the model's first output alone."""

    def build(self, y, dropped):
        return blockdsl.loss.MSELoss()(y)


TRAINED = [["body", "head"], ["head"], ["body"]]


@pytest.mark.parametrize("opset", sorted({12, 13, 18, OPSETS[-1]}))
@pytest.mark.parametrize("trained", TRAINED, ids="+".join)
@pytest.mark.parametrize("name", PARTS)
def test_dropout_drops_whatever_is_trained(tmp_path, engine, name, trained, opset):
    generate(
        tmp_path,
        network(PARTS[name], opset),
        loss=OfTheFirst(),
        requires_grad=trained,
        additional_output_names=["dropped"],
    )
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint", engine=engine)
    module = Module(tmp_path / "training_model.onnx", state, tmp_path / "eval_model.onnx")
    x, target = np.abs(normal(4, 8)), normal(4, 3)
    set_seed(1)
    loss, dropped = module(x, target)
    assert 0.4 < np.mean(dropped == 0) < 0.6
    if "head" in trained:
        # The gradient is that of the very mask which the loss is of.
        error = 2 * (dropped @ state.parameters["head"].data - target) / target.size
        np.testing.assert_allclose(
            state.parameters["head"].grad, dropped.T @ error, rtol=1e-3, atol=1e-5
        )
    assert module(x, target)[0] != loss
    set_seed(1)
    assert module(x, target)[0] == loss
    module.eval()
    (loss, whole), (again, _) = module(x, target), module(x, target)
    assert loss == again
    assert np.mean(whole == 0) < 0.05


def test_a_converted_training_model_keeps_its_dropout(tmp_path):
    """The format of the runtime itself is written after optimization."""
    path = tmp_path / "model.onnx"
    onnx.save(network(PARTS["dropout"], 17), path)
    session = onnxruntime.InferenceSession(convert_to_ort(path), providers=["CPUExecutionProvider"])
    _, dropped = session.run(None, {"x": np.ones((4, 8), np.float32)})
    assert 0.4 < np.mean(dropped == 0) < 0.6
