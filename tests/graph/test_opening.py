"""Models that ONNX Runtime runs, or would run but for a name, and that ONNX's checker refuses."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser
from onnx.backend.test.case.node import collect_testcases

import blockdsl
from blockdsl.errors import ArtifactError, BlockWarning, GraphError
from blockdsl.graph import Graph
from tests.engines import run, runs
from tests.runs import Run, generate, normal

X, C = normal(2, 5), np.array(True)
WEIGHTS = {"w": normal(5, 4), "v": normal(4, 3)}
PLAIN = "h = MatMul(x, w)  r = Relu(h)  y = MatMul(r, v)"
BRANCHES = """h = MatMul(x, w)
r = If(c)<then_branch = one () => (float[N, 4] p) {t = Relu(h)  p = Mul(t, t)},
          else_branch = two () => (float[N, 4] q) {s = Neg(h)  q = Exp(s)}>
y = MatMul(r, v)"""
CALL = "h = MatMul(x, w)  r = own.f(h)  y = MatMul(r, v)"


def model(body=PLAIN, opset=17, inputs="float[N, 5] x", function="t = Relu(a)  b = Relu(t)"):
    parsed = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": {opset}, "own": 1]>
        g ({inputs}) => (float[N, 3] y) {{ {body} }}
        <domain: "own", opset_import: ["": {opset}]> f (a) => (b) {{ {function} }}"""
    )
    for name, array in WEIGHTS.items():
        parsed.graph.initializer.append(numpy_helper.from_array(array, name))
    return parsed


def reverse(nodes):
    copies = list(nodes)[::-1]
    del nodes[:]
    nodes.extend(copies)


def name_alike(nodes):
    for node in nodes:
        node.name = "F0::anon"


def bodies(model):
    return [attribute.g for attribute in model.graph.node[1].attribute]


def edited(edit, **settings):
    result = model(**settings)
    edit(result)
    return result


def reversed_in_bodies(model):
    for body in bodies(model):
        reverse(body.node)


def alike_in_bodies(model):
    for body in bodies(model):
        name_alike(body.node)


def use_microsoft(model):
    model.graph.node[1].op_type, model.graph.node[1].domain = "Gelu", "com.microsoft"


def add_groups(model):
    for name in ("scale", "bias"):
        model.graph.initializer.append(numpy_helper.from_array(np.float32([1, 2]), name))


def imported(*pairs):
    return lambda m: m.opset_import.extend(helper.make_opsetid(*pair) for pair in pairs)


BRANCHED = {"body": BRANCHES, "inputs": "float[N, 5] x, bool c"}
GROUPS = (
    "h = MatMul(x, w)  r = GroupNormalization<num_groups = 2>(h, scale, bias)  y = MatMul(r, v)"
)
UNNAMED, TWICE = np.ones(3, np.float32), np.zeros((5, 4), np.float32)

ACCEPTED = {
    "names": edited(lambda m: name_alike(m.graph.node)),
    "names in bodies": edited(alike_in_bodies, **BRANCHED),
    "names in functions": edited(lambda m: name_alike(m.functions[0].node), body=CALL),
    "order": edited(lambda m: reverse(m.graph.node)),
    "order in bodies": edited(reversed_in_bodies, **BRANCHED),
    "order around bodies": edited(lambda m: reverse(m.graph.node), **BRANCHED),
    "deprecated": edited(add_groups, body=GROUPS, opset=18),
    "function body that is not inferred": model(
        "h = MatMul(x, w)  r = MeanVarianceNormalization<axes = [0, 1]>(h)  y = MatMul(r, v)"
    ),
    "missing import": edited(use_microsoft),
    "import without a version": edited(imported(("com.microsoft", 0))),
    "imports": edited(imported(("unused", 1), ("", 17), ("", 15), ("ai.onnx", 17))),
    "metadata twice": edited(
        lambda m: [m.metadata_props.add(key="k", value=value) for value in "ab"]
    ),
    "initializer twice": edited(
        lambda m: m.graph.initializer.insert(0, numpy_helper.from_array(TWICE, "w"))
    ),
    "initializer without a name": edited(
        lambda m: m.graph.initializer.append(numpy_helper.from_array(UNNAMED))
    ),
    "negative dimension": edited(
        lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", -1)
    ),
    "no type": edited(lambda m: m.graph.output[0].ClearField("type")),
    "no name": edited(lambda m: setattr(m.graph, "name", "")),
    "initializers of IR 3": edited(lambda m: setattr(m, "ir_version", 3)),
}
RENAMED = {"names", "names in bodies", "names in functions", "order in bodies"}


class MeanSquare(blockdsl.Block):
    def build(self, y):
        return (y * y).mean()


@pytest.mark.filterwarnings("ignore:ONNX's checker objects")
@pytest.mark.parametrize("name", ACCEPTED)
def test_models_that_the_checker_refuses(tmp_path, engine, name):
    # Nodes of one name were refused, the others were "not valid ONNX".
    given = ACCEPTED[name]
    feeds = [X, C][: len(given.graph.input)]
    folder = generate(tmp_path, given, loss=MeanSquare(), requires_grad=["w", "v"])
    training = Run(folder, engine)
    loss = float(training.module(*feeds))
    if runs(given, {"x": X, "c": C}):
        (y,) = run(given, {"x": X, "c": C})
        assert loss == pytest.approx(float(np.mean(y**2)), rel=1e-5)
    else:
        assert name in RENAMED
    assert float(training.evaluate(*feeds)) == pytest.approx(loss, rel=1e-5)
    training.train(*feeds)


def test_the_verdict_of_the_checker_is_a_warning(tmp_path):
    given = ACCEPTED["deprecated"]
    with pytest.warns(BlockWarning, match="objects to the model that was opened.*deprecated"):
        generate(tmp_path, given, loss=MeanSquare())


def test_what_blocks_add_is_checked_all_the_same():
    graph = Graph(onnx.ModelProto.FromString(ACCEPTED["deprecated"].SerializeToString()))
    graph.proto.graph.node.append(helper.make_node("Relu", ["y"], ["z"]))
    graph.sync()
    graph.set_outputs(["z"])
    with pytest.warns(BlockWarning, match="deprecated"):
        graph.check()
    graph.proto.graph.node[-1].attribute.append(helper.make_attribute("colour", 1))
    with pytest.raises(GraphError, match="not valid ONNX: Unrecognized attribute: colour"):
        graph.check()


def test_nodes_are_renamed_and_sorted_once():
    given = edited(lambda m: (name_alike(m.graph.node), reverse(m.graph.node)))
    graph = Graph(onnx.ModelProto.FromString(given.SerializeToString()))
    assert [n.op_type for n in graph.proto.graph.node] == ["MatMul", "Relu", "MatMul"]
    names = [n.name for n in graph.proto.graph.node]
    assert names == ["F0::anon", "F0::anon_1", "F0::anon_2"]
    again = Graph(onnx.ModelProto.FromString(graph.proto.SerializeToString()))
    assert again.proto == graph.proto


REFUSED = {
    "two nodes write one tensor": (
        edited(lambda m: m.graph.node.append(m.graph.node[1])),
        GraphError,
        r"not in single static assignment form: 'r' is written by the nodes '' \(Relu\) and ''",
    ),
    "two nodes of a body write one tensor": (
        edited(lambda m: bodies(m)[0].node.append(bodies(m)[0].node[0]), **BRANCHED),
        GraphError,
        "not in single static assignment form: 't' is written",
    ),
    "a cycle": (
        edited(lambda m: m.graph.node[0].input.__setitem__(0, "r")),
        GraphError,
        "form a cycle: each of the tensors '[hr]', '[hr]' depends on all of them",
    ),
    "an old opset": (model(opset=6), ArtifactError, "of opset 6, and training needs 7"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_without_a_meaning_are_refused(tmp_path, name):
    given, error, text = REFUSED[name]
    with pytest.raises(error, match=text):
        generate(tmp_path, given)


@pytest.mark.filterwarnings("ignore:ONNX's checker objects", "ignore::RuntimeWarning")
def test_every_case_of_onnx_is_opened():
    # MeanVarianceNormalization, STFT and deprecated operators were "not valid ONNX".
    cases = {c.name: c.model for c in collect_testcases(None) if c.model is not None}
    assert len(cases) > 1000
    assert {name for name, given in cases.items() if not is_opened(given)} == set()


def is_opened(given):
    try:
        Graph(onnx.ModelProto.FromString(given.SerializeToString())).check()
    except GraphError:
        return False
    return True
