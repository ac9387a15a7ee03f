"""When an output may be written over an input: each answer, and that runs are right either way."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser

from blockdsl.backend.buffer import Buffer, owned, to_array, wrap
from blockdsl.backend.in_place import InPlaceCheck
from blockdsl.backend.providers import CPU
from blockdsl.backend.session.binding import BoundSession
from blockdsl.backend.session.load import open_session

# name: (nodes, the pairs <input>.out -> may it be written over <input>?)
# Inputs are p, q and g, all float[4, 4].
GRAPHS = {
    "one step": ("p.out = Sub(p, g)", {"p": True}),
    "an input on the right": ("p.out = Sub(g, p)", {"p": True}),
    "an input read twice": ("p.out = Mul(p, p)", {"p": True}),
    "not read at all": ("p.out = Identity(g)", {"p": True}),
    "itself": ("p.out = Identity(p)", {"p": True}),
    "momentum": (
        "m = Mul(q, g) q.out = Add(m, g) u = Mul(q.out, g) p.out = Sub(p, u)",
        {"p": True, "q": True},
    ),
    "decay before the step": ("d = Mul(p, g) s = Sub(p, d) p.out = Sub(s, g)", {"p": True}),
    "accumulation of a product": ("w = MatMul(q, g) p.out = Add(p, w)", {"p": True}),
    "scaled by its norm": (
        "n = ReduceL2<keepdims: int = 0>(p) u = Div(g, n) p.out = Sub(p, u)",
        {"p": True},
    ),
    "clipped by the norm of all": (
        "a = ReduceSumSquare<keepdims: int = 0>(p) b = ReduceSumSquare<keepdims: int = 0>(g) "
        "t = Sum(a, b) n = Sqrt(t) p.out = Div(p, n)",
        {"p": True},
    ),
    "skipped where not finite": ("b = IsNaN(g) s = Sub(p, g) p.out = Where(b, p, s)", {"p": True}),
    "a view in between": (
        "flat = Reshape(p, flat_shape) s = Add(flat, ones16) p.out = Reshape(s, square)",
        {"p": True},
    ),
    # Counter-examples: written over, each of these would read what has just been written.
    "swap": ("p.out = Identity(q) q.out = Identity(p)", {"p": False, "q": False}),
    "read later": ("p.out = Sub(p, g) s = Add(p, g) q.out = Sub(q, s)", {"p": False, "q": True}),
    "read later through a view": (
        "r = Reshape(p, square) p.out = Sub(p, g) q.out = Sub(q, r)",
        {"p": False, "q": True},
    ),
    "old and new momentum": (
        "q.out = Add(q, g) u = Add(q, q.out) p.out = Sub(p, u)",
        {"p": True, "q": False},
    ),
    "product": ("p.out = MatMul(p, g)", {"p": False}),
    "product that fuses with the sum": ("w = MatMul(p, g) p.out = Add(p, w)", {"p": False}),
    "transposed": ("p.out = Transpose(p)", {"p": False}),
    "softmax": ("s = Softmax(p) p.out = Sub(p, s)", {"p": False}),
    "normalised": (
        "m = ReduceMean<axes: ints = [1]>(p) p.out = Sub(p, m)",
        {"p": False},
    ),
    "a view read by the last node": (
        "row = Reshape(p, row_shape) p.out = Add(g, row)",
        {"p": False},
    ),
    "maximum of three": ("p.out = Max(g, q, p)", {"p": False}),
    "branch": (
        """t = Constant<value: tensor = bool {1}>()
        s = If (t) <
            then_branch = yes () => (float[4, 4] a) { a = MatMul(p, g) },
            else_branch = no () => (float[4, 4] b) { b = Identity(g) }>
        p.out = Sub(p, s)""",
        {"p": False},
    ),
    "function": ("s = local.twice(p) p.out = Sub(p, s)", {"p": False}),
}
PAIRS = [(name, *pair) for name, (_, pairs) in GRAPHS.items() for pair in pairs.items()]


def build(name: str, kind: str = "float", shape: str = "4, 4") -> onnx.ModelProto:
    nodes, pairs = GRAPHS[name]
    outputs = ", ".join(f'{kind}[{shape}] "{source}.out"' for source in pairs)
    for source in pairs:
        nodes = nodes.replace(f"{source}.out", f'"{source}.out"')
    text = f"""<ir_version: 8, opset_import: ["": 17, "local": 1]>
    graph ({kind}[{shape}] p, {kind}[{shape}] q, {kind}[{shape}] g) => ({outputs})
    <int64[1] flat_shape = {{16}}, int64[2] square = {{4, 4}}, int64[2] row_shape = {{4, 4}},
     {kind}[16] ones16 = {{{", ".join(["1"] * 16)}}}>
    {{ {nodes} }}
    <domain: "local", opset_import: ["": 17]> twice (x) => (y) {{ y = Add(x, x) }}
    """
    return parser.parse_model(text)


@pytest.mark.parametrize(("name", "source", "allowed"), PAIRS)
def test_answers(name, source, allowed):
    assert InPlaceCheck(build(name).graph).allows(source, f"{source}.out") is allowed


@pytest.mark.parametrize("name", GRAPHS)
def test_runs_are_right_whatever_the_answer(name, rng):
    _, pairs = GRAPHS[name]
    values = {key: rng.normal(size=(4, 4)).astype(np.float32) for key in "pqg"}
    expected = _run_plainly(build(name), values, pairs)
    buffers = {key: Buffer(value.copy()) for key, value in values.items()}
    model = build(name)
    session = BoundSession(
        open_session(model, "model", CPU),
        CPU,
        [],
        [],
        buffers,
        {f"{source}.out": buffers[source] for source in pairs},
        InPlaceCheck(model.graph),
    )
    session.run([])
    for source, wanted in expected.items():
        np.testing.assert_allclose(buffers[source].array, wanted, rtol=1e-5, atol=1e-6)


def test_without_a_check_everything_is_copied(rng):
    values = {key: rng.normal(size=(4, 4)).astype(np.float32) for key in "pqg"}
    expected = _run_plainly(build("swap"), values, GRAPHS["swap"][1])
    buffers = {key: Buffer(value.copy()) for key, value in values.items()}
    outputs = {"p.out": buffers["p"], "q.out": buffers["q"]}
    BoundSession(open_session(build("swap"), "model", CPU), CPU, [], [], buffers, outputs).run([])
    for source, wanted in expected.items():
        np.testing.assert_array_equal(buffers[source].array, wanted)


@pytest.mark.parametrize("shape", ["n, 4", "n, n"])
def test_sizes_must_be_known(shape):
    assert not InPlaceCheck(build("one step", shape=shape).graph).allows("p", "p.out")


def test_types_must_agree():
    model = build("one step")
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    assert not InPlaceCheck(model.graph).allows("p", "p.out")


def test_an_unsorted_graph_is_never_in_place():
    model = build("momentum")
    nodes = list(reversed(model.graph.node))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    assert not InPlaceCheck(model.graph).allows("p", "p.out")


def test_unknown_names_are_never_in_place():
    check = InPlaceCheck(build("one step").graph)
    assert not check.allows("p", "r.out")
    assert not check.allows("r", "p.out")


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.float16, np.int64, np.bool_, ml_dtypes.bfloat16]
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_buffers_share_their_memory(dtype, shape):
    array = np.ones(shape, dtype)
    buffer = Buffer(array)
    assert buffer.array is array
    array[...] = 0
    assert not to_array(buffer.value).any()
    buffer.write(np.ones(shape, dtype))
    assert to_array(buffer.value).all()
    assert array.all()
    assert to_array(wrap(array)).dtype == dtype


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_an_owned_value_keeps_what_it_was_made_of(dtype, shape):
    array = np.ones(shape, dtype)
    value = owned(array)
    array[...] = 0  # as freed memory would be written over
    assert to_array(value).all()
    assert (to_array(value).dtype, to_array(value).shape) == (dtype, shape)


def test_a_buffer_takes_no_other_memory_for_its_own():
    read_only = np.arange(3.0)
    read_only.flags.writeable = False
    buffer = Buffer(read_only)
    buffer.array[0] = 7
    assert read_only[0] == 0


def _run_plainly(model, values, pairs):
    session = open_session(model, "model", CPU).session
    names = [f"{source}.out" for source in pairs]
    feeds = {i.name: values[i.name] for i in session.get_inputs()}
    return dict(zip(pairs, session.run(names, feeds), strict=True))
