"""Models as they come: with functions, bodies, odd domains, and loss blocks that edit by hand."""

import numpy as np
import onnx
import onnx.inliner
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import blockdsl
from blockdsl import loss
from blockdsl.artifacts import LossType
from blockdsl.backend.seed import unrepeatable
from blockdsl.graph import Graph, op
from tests.runs import Run, forward, generate, normal, weight

X, TARGET = normal(8, 4), normal(8, 3)


def losses(folder, engine, model, *batch, **settings):
    """What a model's loss is in the first steps of a training run."""
    return Run(generate(folder, model, **settings), engine).train(*(batch or (X, TARGET)))


def parsed(text, **shapes):
    """A model from ONNX's own syntax, with weights of these shapes."""
    model = parser.parse_model(text)
    for name, shape in shapes.items():
        array = np.random.default_rng(len(name)).normal(size=shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


# -- functions of the model --------------------------------------------------------------------

CALLS = """<ir_version: 8, opset_import: ["": 17, "own": 1]>
g (float[batch, 4] x) => (float[batch, 3] y) {{ {body} }}
<domain: "own", opset_import: ["": 17]>
linear (x, w, b) => (y) {{ h = MatMul(x, w)  y = Add(h, b) }}
<domain: "own", opset_import: ["": 17]>
dropped (x, ratio, train) => (y) {{ y = Dropout(x, ratio, train) }}
<domain: "own", opset_import: ["": 17, "own": 1]>
outer (x, ratio, train) => (y) {{ y = own.dropped(x, ratio, train) }}
<domain: "own", opset_import: ["": 17]>
normalised (x, s, b, m, v) => (y) {{
  y, new_m, new_v = BatchNormalization<training_mode = 1>(x, s, b, m, v) }}
"""


def test_dropout_in_functions_is_off_in_evaluation(tmp_path, engine):
    text = CALLS.format(body="h = own.outer(x, ratio, train)  y = own.linear(h, w, b)")
    model = parsed(text, w=(4, 3), b=(3,))
    for name, value in (("ratio", np.float32(0.5)), ("train", np.array(True))):
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    run = Run(generate(tmp_path, model), engine)
    assert run.evaluate(X, TARGET) == run.evaluate(X, TARGET)
    assert len({float(run.module(X, TARGET)) for _ in range(3)}) > 1


def test_dropout_in_a_branch_is_off_in_evaluation(tmp_path, engine):
    """Before the parameters: a gradient through the branch would draw another mask."""
    tensor = helper.make_tensor_value_info
    then = helper.make_graph(
        [helper.make_node("Dropout", ["x", "ratio", "train"], ["a"])],
        "then",
        [],
        [tensor("a", TensorProto.FLOAT, ["batch", 4])],
    )
    otherwise = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["c"])],
        "else",
        [],
        [tensor("c", TensorProto.FLOAT, ["batch", 4])],
    )

    def build(x):
        train = blockdsl.graph.current().add_initializer(np.array(True), "train")
        blockdsl.graph.current().add_initializer(np.float32(0.5), "ratio")
        for graph in (then, otherwise):
            graph.node[0].input[0] = x
        return op.If(train, then_branch=then, else_branch=otherwise) @ weight("w", 4, 3)

    run = Run(generate(tmp_path, forward(build, ("batch", 4))), engine)
    assert len({float(run.evaluate(X, TARGET)) for _ in range(5)}) == 1
    assert len({float(run.module(X, TARGET)) for _ in range(5)}) > 1


@pytest.mark.parametrize("name", ["Dropout", "Bernoulli"])
def test_a_function_that_is_named_like_an_operator_that_draws(tmp_path, engine, name):
    text = f"""<ir_version: 8, opset_import: ["": 17, "own": 1]>
    g (float[batch, 4] x) => (float[batch, 3] y) {{
      norm = ReduceL2<keepdims = 0>(x)  positive = Cast<to = 9>(norm)  h = MatMul(x, w)
      y = If (positive) <
        then_branch = a () => (float[batch, 3] p) {{ p = own.{name} <seed = 3> (h, norm, norm) }},
        else_branch = c () => (float[batch, 3] q) {{ q = Identity(h) }}>
    }}
    <domain: "own", opset_import: ["": 17]>
    {name} <seed> (x, a, b) => (y) {{
      s = Constant <value_int: int = @seed> ()  f = CastLike (s, x)  y = Mul (x, f) }}"""
    model = parsed(text, w=(4, 3))
    run = Run(generate(tmp_path, model), engine)
    assert run.evaluate(X, TARGET) == run.module(X, TARGET)
    assert unrepeatable(tmp_path / "training_model.onnx") == []


def test_dropout_in_a_function_that_a_branch_calls(tmp_path, engine):
    text = CALLS.format(
        body="""h = MatMul(x, w)  norm = ReduceL2<keepdims = 0>(x)  positive = Cast<to = 9>(norm)
        y = If (positive) <
            then_branch = a () => (float[batch, 3] p) { p = own.outer(h, ratio, train) },
            else_branch = c () => (float[batch, 3] q) { q = Identity(h) }>"""
    )
    model = parsed(text, w=(4, 3))
    model.functions[1].node[0].attribute.append(helper.make_attribute("seed", 7))
    for name, value in (("ratio", np.float32(0.5)), ("train", np.array(True))):
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    run = Run(generate(tmp_path, model), engine)
    assert run.evaluate(X, TARGET) == run.evaluate(X, TARGET)
    assert len({float(run.module(X, TARGET)) for _ in range(5)}) > 1
    assert unrepeatable(tmp_path / "training_model.onnx") == []


def test_batch_norm_in_a_function_has_running_statistics(tmp_path, engine):
    text = CALLS.format(body="h = own.normalised(x, s, c, m, v)  y = own.linear(h, w, b)")
    model = parsed(text, s=(4,), c=(4,), m=(4,), w=(4, 3), b=(3,))
    model.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "v"))
    run = Run(generate(tmp_path, model), engine)
    before = run.values()
    assert {n for n, p in run.state.parameters if p.requires_grad} == {"s", "c", "w", "b"}
    run.train(X, TARGET)
    after = run.values()
    assert not np.array_equal(before["m"], after["m"])
    assert float(run.evaluate(X, TARGET)) != float(run.module(X, TARGET))


def test_a_function_called_in_a_branch(tmp_path, engine):
    text = CALLS.format(
        body="""total = ReduceSum<keepdims = 0>(x)  zero = Constant<value = float {0.0}>()
        positive = Greater(total, zero)
        y = If (positive) <then_branch = a () => (float[batch, 3] p) { p = own.linear(x, w, b) },
                           else_branch = c () => (float[batch, 3] q) { q = MatMul(x, w) }>"""
    )
    model = parsed(text, w=(4, 3), b=(3,))
    called = losses(tmp_path / "called", engine, model)
    plain = losses(tmp_path / "plain", engine, onnx.inliner.inline_local_functions(model))
    np.testing.assert_allclose(called, plain, rtol=1e-5)


@pytest.mark.parametrize("length", [1, 3])
def test_functions_that_call_themselves_are_refused(tmp_path, length):
    model = parsed(CALLS.format(body="y = own.linear(x, w, b)"), w=(4, 3), b=(3,))
    names = ["linear", "second", "third"][:length]
    (linear,) = (function for function in model.functions if function.name == "linear")
    for name in names[1:]:
        model.functions.append(linear)
        model.functions[-1].name = name
    for function in model.functions:
        if function.name in names:
            function.opset_import.add(domain="own", version=1)
            called = names[(names.index(function.name) + 1) % length]
            function.node[0].domain, function.node[0].op_type = "own", called
    with pytest.raises(blockdsl.errors.GraphError, match=r"not valid ONNX: .*recursive: own::lin"):
        generate(tmp_path, model)


# -- bodies ------------------------------------------------------------------------------------


def test_branches_in_branches(tmp_path, engine):
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[batch, 4] x) => (float[batch, 3] y) {
      total = ReduceSum<keepdims = 0>(x)  zero = Constant<value = float {0.0}>()
      low = Less(total, zero)  high = Not(low)
      y = If (high) <
        then_branch = a () => (float[batch, 3] p) {
          p = If (low) <then_branch = b () => (float[batch, 3] q) { q = MatMul(x, w) },
                        else_branch = c () => (float[batch, 3] r) {
                          h = MatMul(x, w)  r = Add(h, b) }> },
        else_branch = d () => (float[batch, 3] s) { s = MatMul(x, w) }>
    }"""
    x = np.abs(X)
    plain = forward(lambda x: x @ weight("w", 4, 3) + weight("b", 3), ("batch", 4))
    model = parsed(text)
    model.graph.initializer.extend(plain.graph.initializer)
    expected = losses(tmp_path / "plain", engine, plain, x, TARGET)
    np.testing.assert_allclose(losses(tmp_path, engine, model, x, TARGET), expected, rtol=1e-5)


# -- domains -----------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["import", "node", "both"])
def test_the_default_domain_by_its_long_name(tmp_path, engine, where):
    model = forward(lambda x: (x @ weight("w", 4, 3)).relu(), ("batch", 4))
    expected = losses(tmp_path / "short", engine, model)
    if where != "node":
        next(o for o in model.opset_import if not o.domain).domain = "ai.onnx"
    if where != "import":
        model.graph.node[0].domain = "ai.onnx"
    assert losses(tmp_path / "long", engine, model) == expected


# -- loss blocks that edit the model by hand ---------------------------------------------------


class Prepended(blockdsl.Block):
    """The targets come as bytes, and a node before all others turns them into numbers."""

    def build(self, y):
        result = loss.MSELoss()(y)
        graph = self.base.graph
        del graph.input[[i.name for i in graph.input].index("target")]
        graph.input.append(helper.make_tensor_value_info("raw", TensorProto.UINT8, ["batch", 3]))
        cast = helper.make_node("Cast", ["raw"], ["target"], to=TensorProto.FLOAT)
        nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in (cast, *graph.node)]
        del graph.node[:]
        graph.node.extend(nodes)
        return result


class OtherHead(blockdsl.Block):
    """The last node gives way to another: there are as many nodes as before."""

    def build(self, y):
        graph = self.base.graph
        assert graph.node.pop().output[0] == y
        graph.node.append(helper.make_node("Mul", ["MatMul", "b"], ["scaled"]))
        return loss.MSELoss()("scaled")


class Chosen(blockdsl.Block):
    """A node with bodies that read the scope around them."""

    def build(self, y):
        graph, tensor = self.base.graph, helper.make_tensor_value_info
        bodies = {}
        for name, kind in (("then_branch", "Mul"), ("else_branch", "Add")):
            node = helper.make_node(kind, [y, y], [name])
            bodies[name] = helper.make_graph(
                [node], name, [], [tensor(name, TensorProto.FLOAT, ["batch", 3])]
            )
        graph.initializer.append(numpy_helper.from_array(np.array(True), "squared"))
        graph.node.append(helper.make_node("If", ["squared"], ["chosen"], **bodies))
        graph.node.append(helper.make_node("ReduceMean", ["chosen"], ["mean"], keepdims=0))
        return "mean"


class Called(blockdsl.Block):
    """A function that the block adds to the model."""

    def build(self, y):
        square = helper.make_node("Mul", ["x", "x"], ["y"])
        opset = helper.make_opsetid("", 17)
        own = helper.make_function("own", "Square", ["x"], ["y"], [square], [opset])
        self.base.functions.append(own)
        self.base.opset_import.append(helper.make_opsetid("own", 1))
        self.base.graph.node.append(helper.make_node("Square", [y], ["square"], domain="own"))
        self.base.graph.node.append(helper.make_node("ReduceMean", ["square"], ["m"], keepdims=0))
        return "m"


def test_edits_by_hand(tmp_path, engine):
    model = forward(lambda x: x @ weight("w", 4, 3) + weight("b", 3), ("batch", 4))
    scaled = forward(lambda x: x @ weight("w", 4, 3) * weight("b", 3), ("batch", 4))
    target, zero = np.arange(24, dtype=np.uint8).reshape(8, 3) % 5, np.zeros_like(TARGET)
    for block, batch, plain, its_batch in (
        (Prepended(), (X, target), model, (X, target.astype(np.float32))),
        (OtherHead(), (X, TARGET), scaled, (X, TARGET)),
        (Chosen(), (X,), model, (X, zero)),
        (Called(), (X,), model, (X, zero)),
    ):
        folder = tmp_path / type(block).__name__
        by_hand = losses(folder / "hand", engine, model, *batch, loss=block)
        expected = losses(folder / "plain", engine, plain, *its_batch, loss=LossType.MSELoss)
        np.testing.assert_allclose(by_hand, expected, rtol=1e-4)


def test_what_is_appended_does_not_index_the_model_anew(monkeypatch):
    count = 0

    def reindex(self):
        nonlocal count
        count += 1
        original(self)

    original = Graph._reindex
    monkeypatch.setattr(Graph, "_reindex", reindex)
    model = forward(lambda x: (x @ weight("w", 4, 3)).relu() @ weight("v", 3, 1), ("batch", 4))
    opened = count
    assert opened == 1
    blockdsl.grad(model_of_mean(model), wrt=["w", "v"])
    assert count == opened + 2


def model_of_mean(model):
    with blockdsl.base(model) as handle:
        mean = blockdsl.graph.current().value(model.graph.output[0].name).mean()
        blockdsl.graph.current().set_outputs([mean])
    return handle.model


def test_parameters_and_inputs_among_the_outputs(tmp_path, engine):
    model = forward(lambda x: x @ weight("w", 4, 3), ("batch", 4))
    generate(tmp_path, model, additional_output_names=["w", "x"])
    run = Run(tmp_path, engine)
    _, w, x = run.module(X, TARGET)
    before = run.values()["w"]
    run.optimizer.step()
    np.testing.assert_array_equal(w, before)  # a copy: the step has changed the parameter alone
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(run.evaluate(X, TARGET)[1], run.values()["w"])
