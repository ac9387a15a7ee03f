"""Branches of different ranks, as exporters write `torch.squeeze` of a size that is not known."""

import numpy as np
import pytest
from onnx import numpy_helper, parser

import blockdsl
from blockdsl.graph import Graph
from tests.engines import run
from tests.runs import Run, generate

AXIS = {"one": [1], "none": []}
SHAPES = {
    "lstm": (1, 16, 5), "lstm_r": (1, 16, 4), "gru": (1, 12, 5), "gru_r": (1, 12, 4),
    "rnn": (1, 4, 5), "rnn_r": (1, 4, 4), "conv": (2, 3, 2), "conv2": (2, 2, 2, 2),
    "w": (5, 2), "row": (1, 3, 5), "image": (1, 2, 3, 5), "three": (3,),
}  # fmt: skip

SIZE = "sizes = Shape(x)  d = Gather(sizes, one)  e = Equal(d, one)  c = Reshape(e, none)"
SQUEEZED = "a () => (float[p] a) {a = Squeeze(x, one)}"
WHOLE = "b () => (float[p, q] b) {b = Identity(x)}"
SQUEEZES = {
    "squeeze": f"{SIZE}  s = If(c)<then_branch = {SQUEEZED}, else_branch = {WHOLE}>",
    "negated": f"{SIZE}  n = Not(c)  s = If(n)<then_branch = {WHOLE}, else_branch = {SQUEEZED}>",
}
THREE_AXES = {
    "LSTM": "y, h, k = LSTM<hidden_size = 4>(s, lstm, lstm_r)",
    "GRU": "y, h = GRU<hidden_size = 4>(s, gru, gru_r)",
    "RNN": "y, h = RNN<hidden_size = 4>(s, rnn, rnn_r)",
    "Conv": "y = Conv(s, conv)",
    "AveragePool": "y = AveragePool<kernel_shape = [2]>(s)",
    "Transpose": "y = Transpose<perm = [2, 0, 1]>(s)",
    "Concat": "y = Concat<axis = 0>(s, row)",
    "after others": "r = Tanh(s)  m = MatMul(r, w)  y = Conv<kernel_shape = [2]>(m, conv)",
    "a later tensor": "r = Tanh(s)  o = Neg(row)  y = Concat<axis = 0>(r, o)",
}
FOUR_AXES = {
    "Conv": "y = Conv<kernel_shape = [2, 2]>(s, conv2)",
    "AveragePool": "y = AveragePool<kernel_shape = [2, 2]>(s)",
    "Transpose": "y = Transpose<perm = [0, 2, 1, 3]>(s)",
    "Concat": "y = Concat<axis = 0>(s, image)",
}
CASES = [(1, "N, K, 3, 5", name, body) for name, body in THREE_AXES.items()]
CASES += [(2, "N, K, 3, 5", name, body) for name, body in FOUR_AXES.items()]
CASES += [(1, "N, 1, 3, 5", "known size", "y = MatMul(s, w)")]


def model(body, dims):
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[{dims}] x) => (float y) {{ {body} }}'
    parsed = parser.parse_model(text)
    parsed.graph.output[0].type.tensor_type.ClearField("shape")
    for name, value in AXIS.items():
        parsed.graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    for i, (name, shape) in enumerate(SHAPES.items()):
        array = np.random.default_rng(i).normal(size=shape).astype(np.float32)
        parsed.graph.initializer.append(numpy_helper.from_array(array, name))
    return parsed


@pytest.mark.parametrize("squeeze", SQUEEZES)
@pytest.mark.parametrize(("size", "dims", "name", "body"), CASES)
def test_the_branch_is_the_one_that_the_next_operators_take(squeeze, size, dims, name, body):
    # "LSTM cannot take these inputs ... [?, ?, ?, ?]": the rank was that of the first branch.
    given = model(f"{SQUEEZES[squeeze]}  {body}", dims)
    x = np.random.default_rng(0).normal(size=(2, size, 3, 5)).astype(np.float32)
    (y,) = run(given, {"x": x})
    cotangent = np.random.default_rng(1).normal(size=y.shape).astype(np.float32)
    product = blockdsl.vjp(given, wrt=["x"], of=["y"])
    gradient = run(product, {"x": x, "y_cotangent": cotangent})[1]
    direction = np.random.default_rng(2).normal(size=x.shape).astype(np.float32)
    ahead, behind = (run(given, {"x": x + s * direction})[0] for s in (1e-2, -1e-2))
    slope = np.sum((ahead.astype(float) - behind) / 2e-2 * cotangent)
    assert np.sum(gradient * direction) == pytest.approx(slope, rel=1e-2, abs=1e-2)


@pytest.mark.parametrize("squeeze", SQUEEZES)
def test_an_lstm_behind_a_squeeze_trains(tmp_path, engine, squeeze):
    given = model(f"{SQUEEZES[squeeze]}  {THREE_AXES['LSTM']}", "N, K, 3, 5")
    folder = generate(tmp_path, given, requires_grad=["lstm", "lstm_r"])
    x = np.random.default_rng(0).normal(size=(2, 1, 3, 5)).astype(np.float32)
    Run(folder, engine).train(x, np.zeros((2, 1, 3, 4), np.float32))


def test_such_a_squeeze_inside_a_branch_trains(tmp_path, engine):
    inner = f"{SQUEEZES['negated']}  r, h, k = LSTM<hidden_size = 4>(s, lstm, lstm_r)"
    body = f"""total = ReduceSum<keepdims = 0>(x)  zero = Constant<value_float = 0.0>()
        g = Less(total, zero)
        y = If(g)<then_branch = t () => (float[u, v, m, o] l)
                      {{ l = Constant<value = float[1, 1, 1, 1] {{0.0}}>() }},
                  else_branch = f () => (float[u, v, m, o] r) {{ {inner} }}>"""
    folder = generate(tmp_path, model(body, "N, K, 3, 5"), requires_grad=["lstm", "lstm_r"])
    x = np.random.default_rng(0).uniform(size=(2, 1, 3, 5)).astype(np.float32)
    Run(folder, engine).train(x, np.zeros((2, 1, 3, 4), np.float32))


def test_what_takes_both_decides_nothing():
    graph = Graph(model(f"{SQUEEZES['squeeze']}  y = MatMul(s, w)", "N, K, 3, 5"))
    assert graph.constant_value("c") is None


def test_two_such_squeezes_one_after_the_other():
    body = f"""{SQUEEZES["squeeze"]}  i = Constant<value_ints = [0]>()  f = Gather(sizes, i)
        j = Equal(f, one)  m = Reshape(j, none)
        t = If(m)<then_branch = a2 () => (float[p2] a2) {{a2 = Squeeze(s, i)}},
                  else_branch = b2 () => (float[p2, q2] b2) {{b2 = Identity(s)}}>
        y = Gemm(t, w)"""
    graph = Graph(model(body, "N, K, 3, 5"))
    assert graph.constant_value("c").all()
    assert graph.constant_value("m").all()
    assert len(graph.type_of("t").shape) == 2
