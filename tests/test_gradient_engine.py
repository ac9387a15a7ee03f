"""What the gradient engine does around the rules: errors, names, uses, functions, registration."""

import numpy as np
import pytest
from onnx import TensorProto, helper, parser
from onnx.defs import onnx_opset_version

from blockdsl.errors import BlockWarning, GradientError, UnknownNameError
from blockdsl.gradient import build_gradients, no_gradient, registry, vjp
from blockdsl.graph import Graph, activate, op
from blockdsl.graph.control import close
from blockdsl.testing import assert_close, check_gradients, evaluate
from tests.engines import run
from tests.gradient_models import with_gradients

FLOAT = TensorProto.FLOAT


@pytest.fixture
def graph():
    grown = Graph(helper.make_model(helper.make_graph([], "graph", [], []), ir_version=8))
    del grown.proto.opset_import[:]
    grown.proto.opset_import.append(helper.make_opsetid("", 17))
    grown.proto.opset_import.append(helper.make_opsetid("my.domain", 1))
    grown = Graph(grown.proto)
    grown.add_input("x", FLOAT, ["batch", 3])
    grown.add_initializer(np.arange(3, dtype=np.float32), "w")
    with activate(grown):
        yield grown


@pytest.fixture
def rules():
    """Rules that a test adds go away with it."""
    tables = (registry.RULES, registry.NO_GRADIENT)
    before = [dict(table) for table in tables]
    yield
    for table, old in zip(tables, before, strict=True):
        table.clear()
        table.update(old)


def value_of(graph, name, feeds):
    graph.set_outputs([name])
    graph.check()
    return evaluate(graph.proto)(feeds)[0]


X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


# -- errors ---------------------------------------------------------------------------------------


def test_unknown_names(graph):
    loss = (graph.value("x") * "w").sum()
    with pytest.raises(UnknownNameError, match="Node arg v is not found in the graph"):
        build_gradients(graph, loss, ["v"])
    with pytest.raises(UnknownNameError, match="Node arg los is not found"):
        build_gradients(graph, "los", ["w"])


def test_only_floats_have_gradients(graph):
    loss = (graph.value("x") * "w").sum()
    with pytest.raises(GradientError, match=r"'n' has the type int64\[\]: a gradient needs a fl"):
        build_gradients(graph, loss, [graph.add_input("n", TensorProto.INT64, [])])
    with pytest.raises(GradientError, match="the loss needs a floating-point tensor"):
        build_gradients(graph, op.ArgMax(graph.value("w"), axis=0), ["w"])


def test_a_gradient_starts_from_one_number(graph):
    y = graph.value("x") * "w"
    with pytest.raises(GradientError, match=r"float32\[batch, 3\]; a gradient starts from one num"):
        build_gradients(graph, y, ["w"])


def test_a_missing_rule_is_named(graph):
    graph.proto.graph.node.append(
        helper.make_node("Secret", ["w"], ["y"], "the node", domain="my.domain")
    )
    graph.proto.graph.value_info.append(helper.make_tensor_value_info("y", FLOAT, [3]))
    loss = graph.value("y").sum()
    with pytest.raises(GradientError, match=r"no gradient rule for my\.domain::Secret \(node 'th"):
        build_gradients(graph, loss, ["w"])


def test_what_blocks_a_gradient_is_named(graph):
    loss = op.ArgMax(graph.value("w"), axis=0).cast(np.float32).sum()
    with pytest.raises(GradientError, match="'w' reaches the loss only through ArgMax"):
        build_gradients(graph, loss, ["w"])


def test_a_gradient_of_nothing_is_zero_and_warns(graph):
    loss = graph.value("x").sum()
    with pytest.warns(BlockWarning, match="'w' does not influence 'ReduceSum': its gradient is ze"):
        gradients = build_gradients(graph, loss, ["w"])
    assert value_of(graph, gradients["w"], {"x": X}).tolist() == [0, 0, 0]


# -- names and what is left behind ----------------------------------------------------------------


def test_gradients_are_named_after_what_they_belong_to(graph):
    loss = (graph.value("x") * "w").exp().sum()
    assert build_gradients(graph, loss, ["w", "x"]) == {"w": "w_grad", "x": "x_grad"}
    again = build_gradients(graph, graph.value("w_grad").sum(), ["w"])
    assert again == {"w": "w_grad_1"}


def test_equal_gradients_have_names_of_their_own(graph):
    loss = (graph.value("x") + graph.add_input("z", FLOAT, ["batch", 3])).sum()
    gradients = build_gradients(graph, loss, ["x", "z"])
    assert gradients == {"x": "x_grad", "z": "z_grad"}
    assert value_of(graph, "z_grad", {"x": X, "z": X}).tolist() == np.ones((2, 3)).tolist()


def test_nothing_is_left_that_no_gradient_needs(graph):
    loss = ((graph.value("x") * "w").tanh() * graph.value("x")).sum()
    build_gradients(graph, loss, ["w"])
    read = {name for node in graph.proto.graph.node for name in node.input} | {loss, "w_grad"}
    assert [n.name for n in graph.proto.graph.node if read.isdisjoint(n.output)] == []
    assert [t.name for t in graph.proto.graph.initializer if t.name not in read] == []


def test_a_gradient_that_a_body_reads_keeps_its_name_there(graph):
    x, w = graph.value("x"), graph.value("w")
    bodies = {}
    for name, function in (("then_branch", "Tanh"), ("else_branch", "Exp")):
        with graph.body(name) as child, activate(child):
            close(child, [getattr(op, function)(w)])
        bodies[name] = child.proto.graph
    y = op.If(x.sum() > 0, **bodies)
    gradients = build_gradients(graph, (y * y).sum(), [y, "w"])
    w0 = np.arange(3)
    expected = 2 * np.tanh(w0) * (1 - np.tanh(w0) ** 2)
    assert_close(value_of(graph, gradients["w"], {"x": X}), expected.astype(np.float32))


# -- what is differentiated -----------------------------------------------------------------------


def test_a_seed_is_the_cotangent(graph):
    y = graph.value("x") * "w"
    seed = graph.add_input("seed", FLOAT, ["batch", 3])
    gradients = build_gradients(graph, y, ["w"], seed=seed)
    assert value_of(graph, gradients["w"], {"x": X, "seed": X}).tolist() == [17, 29, 45]


def test_by_what_it_is(graph):
    loss = graph.value("w").sum()
    gradients = build_gradients(graph, loss, [loss, "w"])
    assert value_of(graph, gradients[loss], {"x": X}) == 1


def test_by_an_intermediate_tensor(graph):
    y = graph.value("x") * "w"
    gradients = build_gradients(graph, (y * y).sum(), [y])
    assert_close(value_of(graph, gradients[y], {"x": X}), 2 * X * np.arange(3, dtype=np.float32))


def test_an_optional_output_is_declared_for_the_rule(graph):
    graph.proto.graph.node.append(
        helper.make_node("MaxPool", ["image"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    )
    graph.proto.graph.input.append(helper.make_tensor_value_info("image", FLOAT, [1, 1, 4, 4]))
    build_gradients(graph, graph.value("y").sum(), ["image"])
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    found = value_of(graph, "image_grad", {"x": X, "image": image})
    assert found.reshape(4, 4).tolist() == [[0] * 4, [0, 1, 0, 1], [0] * 4, [0, 1, 0, 1]]


def test_a_models_own_function_is_differentiated(graph):
    body = [
        helper.make_node("Mul", ["a", "b"], ["ab"]),
        helper.make_node("Tanh", ["ab"], ["c"]),
    ]
    function = helper.make_function(
        "my.domain", "Gate", ["a", "b"], ["c"], body, [helper.make_opsetid("", 17)]
    )
    graph.proto.functions.append(function)
    graph.proto.graph.node.append(
        helper.make_node("Gate", ["x", "w"], ["y"], "gate", domain="my.domain")
    )
    graph.proto.graph.value_info.append(helper.make_tensor_value_info("y", FLOAT, ["batch", 3]))
    graph.set_outputs(["y"])
    check_gradients(graph.proto, {"x": X / 10})


# -- rules ----------------------------------------------------------------------------------------


def cube(graph):
    graph.proto.graph.node.append(
        helper.make_node("Cube", ["w"], ["y"], domain="my.domain", factor=2.0)
    )
    graph.proto.graph.value_info.append(helper.make_tensor_value_info("y", FLOAT, [3]))
    return graph.value("y").sum()


@pytest.mark.usefixtures("rules")
def test_a_rule_for_an_operator_of_ones_own(graph):
    @vjp("Cube", domain="my.domain")
    def cube_rule(g, y, x, *, factor):
        """y = factor x^3        dx = 3 factor x^2 g"""
        return 3 * factor * x * x * g

    build_gradients(graph, cube(graph), ["w"])
    graph.proto.graph.node[0].op_type, graph.proto.graph.node[0].domain = "Identity", ""
    del graph.proto.graph.node[0].attribute[:]
    assert value_of(graph, "w_grad", {"x": X}).tolist() == [0, 6, 24]
    assert registry.rule_of("Cube", "my.domain").formula.startswith("y = factor x^3")


@pytest.mark.usefixtures("rules")
def test_a_rule_replaces_another(graph):
    @vjp("Tanh")
    def one(g, y, x):
        """y = tanh(x)        dx = g        (wrong on purpose)"""
        return g

    build_gradients(graph, graph.value("w").tanh().sum(), ["w"])
    assert value_of(graph, "w_grad", {"x": X}).tolist() == [1, 1, 1]


@pytest.mark.usefixtures("rules")
def test_an_operator_can_be_declared_constant(graph):
    no_gradient("Cube", domain="my.domain", reason="it is a cube")
    with pytest.raises(GradientError, match=r"through Cube .* no derivative: it is a cube"):
        build_gradients(graph, cube(graph), ["w"])


def test_a_rule_that_does_not_fit_the_schema_is_refused():
    with pytest.raises(GradientError, match=r"takes the inputs \(x\), and the operator has \(A, B"):

        @vjp("Add")
        def add(g, y, x):
            return g

    with pytest.raises(GradientError, match="asks for alpha, and the operator has no such attrib"):

        @vjp("Tanh")
        def tanh(g, y, x, *, alpha):
            return g


@pytest.mark.usefixtures("rules")
def test_an_older_onnx_lacks_attributes_of_newer_opsets(graph, monkeypatch):
    monkeypatch.setattr(registry, "onnx_opset_version", lambda: registry.NEWEST_OPSET - 1)

    @vjp("Tanh")
    def tanh(g, y, x, *, alpha):
        return g if alpha is None else g * alpha

    build_gradients(graph, op.Tanh(op.Identity("w")).sum(), ["w"])


def test_the_newest_opset_is_that_of_the_installed_onnx():
    """Or is newer: a rule's attributes are checked as soon as onnx can know them."""
    assert onnx_opset_version() <= registry.NEWEST_OPSET


@pytest.mark.usefixtures("rules")
def test_a_rule_returns_one_cotangent_per_input(graph):
    @vjp("Mul", broadcast=True)
    def mul(g, y, a, b):
        return g * b

    with pytest.raises(GradientError, match="rule of Mul returned 1 cotangents for 2 inputs"):
        build_gradients(graph, (graph.value("w") * graph.value("w")).sum(), ["w"])


def test_the_gradient_graph_is_linear_in_the_nodes():
    """Twice the nodes make twice the gradient graph."""
    counts = []
    for depth in (10, 20, 40):
        grown = Graph(helper.make_model(helper.make_graph([], "graph", [], []), ir_version=8))
        with activate(grown):
            x = y = grown.add_input("x", FLOAT, [3])
            for _ in range(depth):
                y = (y * x).tanh()
        grown.set_outputs([y])
        counts.append(len(with_gradients(grown.proto, [y], ["x"]).graph.node))
    assert counts[2] - counts[1] == 2 * (counts[1] - counts[0])


def test_a_rule_gets_the_attributes_that_a_function_has_by_default(rules):
    @vjp("Scaled", domain="my.domain")
    def scaled(g, y, x, *, factor):
        return g * factor

    for call, slope in (("Scaled (x)", 3), ("Scaled <factor = 0.5> (x)", 0.5)):
        model = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17, "my.domain" : 1]>
        g (float[2] x) => (float loss) {{
          y = my.domain.{call}
          loss = ReduceSum <keepdims = 0> (y)
        }}
        <domain: "my.domain", opset_import: ["" : 17]>
        Scaled <factor: float = 3.0> (x) => (y) {{
          f = Constant <value_float: float = @factor> ()
          y = Mul (x, f)
        }}""")
        feeds = {"x": np.ones(2, np.float32), "loss_seed": np.ones((), np.float32)}
        found = run(with_gradients(model, ["loss"], ["x"]), feeds)
        np.testing.assert_array_equal(found[0], [slope, slope])


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 0.5])
def test_an_exponent_that_is_trained_is_no_constant(exponent):
    """The rule for x^2 says 2 x, of which nothing depends on the exponent."""
    model = parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float x) => (float y) <float n = {{{exponent}}}> {{ y = Pow (x, n) }}""")
    graph = Graph(model)
    slope = build_gradients(graph, "y", ["x", "n"])["x"]
    mixed = build_gradients(graph, slope, ["n"])["n"]
    graph.set_outputs([mixed])
    (found,) = evaluate(graph.proto)({"x": np.array(1.5, np.float32)})
    power = 1.5 ** (exponent - 1)
    np.testing.assert_allclose(found, power + exponent * power * np.log(1.5), rtol=1e-5)
