"""Types that are known while a model is built are known when it is opened again."""

import numpy as np
import onnx
import pytest
from onnx import helper, parser

import blockdsl
from blockdsl import gradients
from blockdsl.errors import OpError
from blockdsl.graph import Graph, TensorType, current, op
from blockdsl.graph.control import counted, either, repeat, scan
from tests.engines import run
from tests.runs import Run, forward, generate, normal, weight

# Shapes of what loops carry were lost, and the rank of what functions of the model return, so that
# a gradient of the model that was built failed with "the rank is not known".

BUILDS = {
    "states of a loop": (
        lambda x, n: repeat(lambda i, s: [(s[0] + x).tanh()], [x], n),
        "float32[3, 4]",
    ),
    "outputs of a loop": (
        lambda x, n: counted(lambda i, s: ([s[0] + 1], [s[0]]), [x], n)[1],
        "float32[?, 3, 4]",
    ),
    "states of loops in loops": (
        lambda x, n: repeat(lambda i, s: repeat(lambda j, t: [t[0] * x], s, n), [x], n),
        "float32[3, 4]",
    ),
    "a state that is reshaped to where it was": (
        lambda x, n: repeat(lambda i, s: [op.Reshape(s[0].exp(), op.Shape(x))], [x], n),
        "float32[3, 4]",
    ),
    "a state that is shifted": (
        lambda x, n: repeat(lambda i, s: [op.Concat(s[0][1:], x[:1], axis=0)], [x], n),
        "float32[3, 4]",
    ),
    "gradient in a loop": (
        lambda x, n: repeat(lambda i, s: [s[0] - gradients((s[0] ** 4).sum(), s[0])], [x], n),
        "float32[3, 4]",
    ),
    "scan": (
        lambda x, n: scan(lambda s, xs: ([s[0] + xs[0]], [s[0] * 2]), [x[0]], [x])[1],
        "float32[3, 4]",
    ),
    "branches": (
        lambda x, n: [either(n > 2, lambda: x.exp(), lambda: op.Reshape(x, op.Shape(x)))],
        "float32[3, 4]",
    ),
    "gradient of a loop": (
        lambda x, n: [gradients(repeat(lambda i, s: [s[0] * x], [x], n)[0].sum(), x)],
        "float32[3, 4]",
    ),
    "sequence": (
        lambda x, n: [op.ConcatFromSequence(op.SplitToSequence(x), axis=0)],
        "float32[?, 4]",
    ),
    "operator of a runtime": (
        lambda x, n: [op.microsoft.FusedMatMul(x, x, transB=1)],
        "float32[3, 3]",
    ),
}


def opened(model):
    """The graph of a model from a file, whose outputs have no declared shapes."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    for output in copy.graph.output:
        output.type.tensor_type.ClearField("shape")
    return Graph(copy)


@pytest.mark.parametrize(("build", "expected"), BUILDS.values(), ids=BUILDS)
def test_types_survive(build, expected):
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", shape=(3, 4))
        y = build(x, blockdsl.input("n", np.int64, ()))[0]
        current().set_outputs([y.tanh()])
        assert str(y.type) == expected
        current().check()
    found = opened(handle.model).type_of(y)
    assert [d if isinstance(d, int) else None for d in found.shape] == [
        d if isinstance(d, int) else None for d in y.shape
    ]


@pytest.mark.parametrize("build", [b for b, _ in BUILDS.values()], ids=BUILDS)
def test_ranks_survive_with_symbolic_sizes(build):
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", shape=("N", 4))
        y = build(x, blockdsl.input("n", np.int64, ()))[0]
        current().set_outputs([y.tanh()])
        current().check()
    assert opened(handle.model).value(y).rank == y.rank


FUNCTIONS = {
    "plain": "F (x) => (y) { y = Tanh (x) }",
    "reshape": "F (x) => (y) { s = Shape (x) y = Reshape (x, s) }",
    "attribute": "F <alpha> (x) => (y) { y = LeakyRelu <alpha: float = @alpha> (x) }",
    "loop": """F (x) => (y) {
        n = Constant <value = int64 {3}> () t = Constant <value = bool {1}> ()
        y = Loop (n, t, x) <body = b (int64 i, bool g, float[] s) => (bool h, float[] z)
          { h = Identity (g) z = Tanh (s) }> }""",
    "branch": """F (x) => (y) {
        s = ReduceSum <keepdims = 0> (x) z = Constant <value = float {0}> () c = Greater (s, z)
        sh = Shape (x)
        y = If (c) <then_branch = a () => (float[] p) { p = Exp (x) },
                    else_branch = b () => (float[] q) { q = Reshape (x, sh) }> }""",
    "function in a function": "F (x) => (y) { z = my.G (x) y = Exp (z) }",
}
G = '<domain: "my", opset_import: ["": 17]> G (x) => (y) { s = Shape (x) y = Reshape (x, s) }'


def call(x, name="F", overload="", **attributes):
    """A call of a function of the model, appended by hand."""
    graph = current()
    output = graph.names.unique("called")
    node = helper.make_node(
        name, [x], [output], graph.names.unique(name), domain="my", overload=overload, **attributes
    )
    graph.proto.graph.node.append(node)
    graph.sync()
    return graph.value(output)


def with_functions(handle, *texts):
    handle.model.functions.extend(map(parser.parse_function, texts))
    handle.model.opset_import.append(helper.make_opsetid("my", 1))


@pytest.mark.parametrize("branch", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_calls_of_functions_are_typed(name, branch):
    text = f'<domain: "my", opset_import: ["": 17, "my": 1]> {FUNCTIONS[name]}'
    attributes = {"alpha": 0.5} if name == "attribute" else {}
    with blockdsl.empty_base() as handle:
        with_functions(handle, text, G)
        x = blockdsl.input("x", shape=("N", 4))

        def called():
            return call(x, **attributes)

        y = either(x.sum() > 0, called, lambda: x) if branch else called()
        slope = gradients((y * y).sum(), x)
        current().set_outputs([y * 2, slope])
        current().check()
        assert y.rank == 2
        assert slope.shape == ("N", 4)
    array = np.abs(normal(3, 4))
    found, slope = run(handle.model, {"x": array})
    assert found.shape == slope.shape == (3, 4)
    again = blockdsl.grad(handle.model, "x", of=add_sum(handle.model))
    assert np.all(np.isfinite(run(again, {"x": array})[-1]))


def add_sum(model):
    """Append the sum of the first output to a model."""
    with blockdsl.base(model) as handle:
        total = current().value(model.graph.output[0].name).sum()
        current().set_outputs([*(o.name for o in model.graph.output), total])
    model.CopyFrom(handle.model)
    return str(total)


def test_overloads_of_a_function():
    """The first function of the name was taken, whatever the overload."""
    with blockdsl.empty_base() as handle:
        handle.model.ir_version = 10
        head = '<domain: "my", opset_import: ["": 17], overload: "{}"> F (x) => (y) {{ y = {} }}'
        with_functions(
            handle,
            head.format("a", "Shape (x)"),
            head.format("b", "Tanh (x)"),
        )
        x = blockdsl.input("x", shape=("N", 4))
        a, b = call(x, overload="a"), call(x, overload="b")
        assert str(a.type) == "int64[2]"
        assert str(b.type) == "float32[N, 4]"
        slope = gradients(b.sum(), x)
        current().set_outputs([a, slope])
    assert {node.op_type for node in handle.model.graph.node} >= {"F", "Tanh"}


def test_a_rank_that_is_known_otherwise_is_written_into_the_model():
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", shape=("N", 4))
        y = op.Reshape(x, blockdsl.input("s", np.int64, ("R",)))
        current().annotate(y, TensorType(y.elem_type, (None, None)))
        current().set_outputs([y.tanh()])
    handle.model.graph.output[0].type.tensor_type.ClearField("shape")
    assert [info.name for info in handle.model.graph.value_info] == [y]
    assert opened(handle.model).value(y).rank == 2


def test_artifacts_of_a_model_with_a_loop(tmp_path, engine):
    def build(x):
        w, trips = weight("w", 4, 4), current().add_constant(np.array(2))
        return repeat(lambda i, s: [(s[0] @ w).tanh()], [x], trips)[0]

    model = forward(build, ("n", 4))
    run_ = Run(generate(tmp_path, model), engine)
    run_.train(normal(6, 4), normal(6, 4) / 3)


def test_a_step_that_changes_a_shape_is_refused():
    with blockdsl.empty_base():
        x = blockdsl.input("x", shape=(3, 4))
        with pytest.raises(OpError, match="must return its states in the shapes that they begin w"):
            repeat(lambda i, s: [s[0][:2]], [x], op.Size(x))
