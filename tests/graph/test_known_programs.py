"""Integers that a model computes from known numbers, by whatever operators it likes."""

import time

import numpy as np
import pytest
from onnx import helper, numpy_helper, parser

import blockdsl
from blockdsl.graph import Graph
from blockdsl.graph.known_programs import constant_of
from tests.engines import run, runs
from tests.runs import Run, generate, normal

INTEGERS = {"zero": 0, "two": 2, "i0": [0], "i1": [1], "i2": [2], "i3": [3], "m1": [-1]}
INTEGERS |= {"ones": [1, 1, 1], "bits": [0, 0, 1]}
A_B = "a = Constant<value_int = 3>()  b = Constant<value_int = 1>()"
LENGTH = "sizes = Shape(x)  d = Gather(sizes, two)  f = Cast<to = 1>(d)"
LOOP = """M = Constant<value_int = 3>()  go = Constant<value = bool {1}>()
    s = Constant<value_int = -1>()
    r = Loop(M, go, s)<body = body (int64 i, bool c, int64 p) => (bool d, int64 q)
        {d = Identity(c)  k = Constant<value_int = 1>()  q = Add(p, k)}>
    y = Unsqueeze(x, r)"""
SCAN = """m = Constant<value_ints = [1, 1]>()  s = Constant<value_int = 0>()
    r, k = Scan<num_scan_inputs = 1, body = body (int64 p, int64 q) => (int64 u, int64 w)
        {u = Add(p, q)  w = Identity(u)}>(s, m)
    z = Reshape(r, m1)  y = Unsqueeze(x, z)"""

PROGRAMS = {
    "Range": f"{A_B}  e = Sub(a, b)  axes = Range(b, e, b)  y = Unsqueeze(x, axes)",
    "ConstantOfShape": """n = Constant<value_ints = [2]>()
        z = ConstantOfShape<value = int64[1] {1}>(n)  c = CumSum(z, zero)  y = Unsqueeze(x, c)""",
    "Where": f"{A_B}  c = Greater(a, b)  v = Where(c, i1, m1)  y = Unsqueeze(x, v)",
    "ScatterElements": """z = Constant<value_ints = [0, 0, 5]>()
        s = ScatterElements(z, i2, i1)  k = Slice(s, i2, i3)  y = Unsqueeze(x, k)""",
    "NonZero": """m = Constant<value_ints = [0, 1, 1]>()  nz = NonZero(m)
        f = Reshape(nz, m1)  y = Unsqueeze(x, f)""",
    "Loop": LOOP,
    "Scan": SCAN,
    "If": f"""{A_B}  c = Less(a, b)
        r = If(c)<then_branch = one () => (int64[1] p) {{p = Identity(i0)}},
                  else_branch = two () => (int64[1] q) {{q = Identity(i2)}}>
        y = Unsqueeze(x, r)""",
    "Ceil": f"""{LENGTH}  half = Constant<value_float = 0.5>()  h = Mul(f, half)  c = Ceil(h)
        i = Cast<to = 7>(c)  s = Reshape(i, m1)  n = Concat<axis = 0>(s, m1)  y = Reshape(x, n)""",
    "Floor": f"""{LENGTH}  three = Constant<value_float = 3.0>()  h = Div(f, three)  c = Floor(h)
        i = Cast<to = 7>(c)  e = Reshape(i, m1)  y = Slice(x, i0, e, i2)""",
    "ReduceProd": """sizes = Shape(x)  l = Slice(sizes, i1, i3)  p = ReduceProd(l)
        n = Concat<axis = 0>(m1, p)  y = Reshape(x, n)""",
    "Shape": """l = Shape<start = 1>(x)  p = ReduceProd(l)  n = Concat<axis = 0>(m1, p)
        y = Reshape(x, n)""",
    "Max": f"{A_B}  m = Max(a, b)  d = Sub(m, a)  r = Reshape(d, m1)  y = Unsqueeze(x, r)",
    "Sequence": """q = SequenceConstruct(i1, i2)  s = ConcatFromSequence<axis = 0>(q)
        y = Unsqueeze(x, s)""",
    "Split": """v = Constant<value_ints = [1, 2, 3]>()  p, q, r = Split<axis = 0>(v, ones)
        y = Unsqueeze(x, p)""",
    "Size": "s = Size(i3)  r = Reshape(s, m1)  y = Unsqueeze(x, r)",
    "OneHot": """d = Constant<value_int = 3>()  v = Constant<value_ints = [0, 1]>()
        o = OneHot(i1, d, v)  nz = NonZero(o)  k = Slice(nz, i1, i2)  f = Reshape(k, m1)
        y = Unsqueeze(x, f)""",
    "Einsum": """e = Einsum<equation = "i,i->">(ones, bits)  r = Reshape(e, m1)
        y = Unsqueeze(x, r)""",
    "Compress": "c = Cast<to = 9>(bits)  v = Compress(bits, c)  y = Unsqueeze(x, v)",
    "TopK": "v, i = TopK(bits, i1)  y = Unsqueeze(x, i)",
    "Mod": "m = Mod(i3, i2)  y = Unsqueeze(x, m)",
    "Not": """c = Cast<to = 9>(i1)  n = Not(c)  o = Or(c, n)  i = Cast<to = 7>(o)
        y = Unsqueeze(x, i)""",
    "ArgMax": "m = Constant<value_floats = [0.0, 2.0, 1.0]>()  v = ArgMax(m)  y = Unsqueeze(x, v)",
    "Pow": "v = Pow(i2, i1)  y = Unsqueeze(x, v)",
    "BitShift": """m = Constant<value = uint64[1] {1}>()  b = BitShift<direction = "LEFT">(m, m)
        v = Cast<to = 7>(b)  y = Unsqueeze(x, v)""",
    "known length": "sizes = Shape(x)  d = Gather(sizes, i1)  e = Mod(d, i2)  y = Unsqueeze(x, e)",
}
X = normal(2, 3, 5)


def model(body, weights=()):
    parsed = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[N, 3, 5] x) => (float[] y) {{ {body} }}'
    )
    parsed.graph.output[0].type.tensor_type.ClearField("shape")
    for name, value in INTEGERS.items():
        parsed.graph.initializer.append(numpy_helper.from_array(np.int64(value), name))
    for name, array in dict(weights).items():
        parsed.graph.initializer.append(numpy_helper.from_array(array, name))
    return parsed


@pytest.mark.parametrize("name", PROGRAMS)
def test_integer_programs_are_followed(name):
    # A list of operators was followed; a shape that any other one computed had no known rank.
    given = model(PROGRAMS[name])
    (y,) = run(given, {"x": X})
    graph = Graph(given)
    assert graph.type_of("y").admits(y.shape)
    assert len(graph.type_of("y").shape) == y.ndim
    assert any(isinstance(size, int) for size in graph.type_of("y").shape)


def test_group_norm_of_wav2vec_trains(tmp_path, engine):
    # "The rank of ... is not known": torch computes the axes of scale and bias.
    axes = f"{A_B}  e = Sub(a, b)  axes = Range(b, e, b)"
    body = f"""{axes}  n = InstanceNormalization(x, scale, bias)  u = Unsqueeze(w, axes)
        v = Unsqueeze(c, axes)  s = Mul(n, u)  y = Add(s, v)"""
    names = {"scale": 1.0, "bias": 0.0, "w": 0.7, "c": 0.1}
    given = model(body, {n: np.full(3, v, np.float32) for n, v in names.items()})
    folder = generate(tmp_path, given, requires_grad=["w", "c"])
    Run(folder, engine).train(X, np.ones_like(X))


UNBOUNDED = {
    "a long range": """a = Constant<value_int = 0>()  b = Constant<value_int = 1000000000>()
        c = Constant<value_int = 1>()  r = Range(a, b, c)  s = ReduceMin(r)  y = Unsqueeze(x, s)""",
    "a large tensor": """n = Constant<value_ints = [100000, 100000]>()
        z = ConstantOfShape<value = int64[1] {1}>(n)  s = ReduceMax<keepdims = 0>(z)
        y = Unsqueeze(x, s)""",
    "a deep one-hot": """d = Constant<value_int = 1000000000>()
        v = Constant<value_ints = [0, 1]>()  o = OneHot(i1, d, v)  s = ReduceMax<keepdims = 0>(o)
        y = Unsqueeze(x, s)""",
    "a long loop": LOOP.replace("value_int = 3", "value_int = 1000000000"),
    "a loop without an end": LOOP.replace("Loop(M", "Loop("),
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_programs_are_bounded(name):
    began = time.perf_counter()
    graph = Graph(model(UNBOUNDED[name]))
    assert time.perf_counter() - began < 5
    assert len(graph.type_of("y").shape) == 4  # one scalar axis


def test_random_numbers_are_not_known():
    body = "r = RandomUniformLike<dtype = 1>(i3)  i = Cast<to = 7>(r)  y = Unsqueeze(x, i)"
    assert Graph(model(body)).constant_value("i") is None


def test_a_program_that_fails_has_no_value():
    body = "r = Gather(i3, i3)  m = Mod(r, i2)  y = Unsqueeze(x, m)"
    assert Graph(model(body)).constant_value("m") is None


def test_what_is_computed_from_a_weight_varies_with_it():
    # s scales x by the number of its digits: known as long as nothing changes s.
    body = "c = Ceil(s)  i = Cast<to = 7>(c)  f = Cast<to = 1>(i)  g = Mul(x, f)  y = Mul(g, s)"
    graph = Graph(model(body, {"s": np.float32(1.5)}))
    assert graph.constant_value("i") == 2
    graph.make_variables(["s"])
    assert graph.constant_value("i") is None
    assert graph.constant_value("s") is None


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ({"value_int": 3}, np.int64(3)),
        ({"value_ints": [1, 2]}, np.int64([1, 2])),
        ({"value_float": 0.5}, np.float32(0.5)),
        ({"value_floats": [0.5, 1.0]}, np.float32([0.5, 1])),
        ({"value": numpy_helper.from_array(np.int32([4]))}, np.int32([4])),
        ({"value_string": b"text"}, None),
    ],
    ids=str,
)
def test_constants_hold_numbers_in_any_form(attribute, expected):
    held = constant_of(helper.make_node("Constant", [], ["c"], **attribute))
    if expected is None:
        assert held is None
        return
    array = numpy_helper.to_array(held)
    assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(array, expected)


SCALARS = {
    "initializer": "y = Unsqueeze(x, two)",
    "Constant": "a = Constant<value_int = -1>()  y = Unsqueeze(x, a)",
    "computed": "s = Shape(x)  g = Gather(s, zero)  d = Sub(g, g)  y = Unsqueeze(x, d)",
    "known": "s = Shape(x)  g = Gather(s, two)  d = Sub(g, two)  y = Unsqueeze(x, d)",
}


@pytest.mark.parametrize("opset", [13, 18, 21])
@pytest.mark.parametrize("name", SCALARS)
def test_one_axis_may_be_a_scalar(name, opset):
    # TypeError: argument after * must be an iterable. The runtime takes it for Unsqueeze alone.
    given = model(SCALARS[name])
    given.opset_import[0].version = opset
    product = blockdsl.vjp(given, wrt=["x"], of=["y"])
    (y,) = run(given, {"x": X})
    cotangent = np.random.default_rng(0).normal(size=y.shape).astype(np.float32)
    results = run(product, {"x": X, "y_cotangent": cotangent})
    np.testing.assert_array_equal(results[1], cotangent.reshape(X.shape))


@pytest.mark.parametrize(
    "body",
    ["u = Unsqueeze(x, i0)  y = Squeeze(u, zero)", "y = ReduceSum(x, two)", "y = Reshape(x, zero)"],
)
def test_other_scalars_are_refused_by_the_runtime(body):
    assert not runs(model(body), {"x": X})
