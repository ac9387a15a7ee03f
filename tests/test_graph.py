"""The model under construction: what it checks as it grows, names, and who sees it."""

import asyncio
import threading

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

import blockdsl
from blockdsl.errors import GraphError, NoBaseError, OpError, UnknownNameError
from blockdsl.graph import Graph, activate, current, op
from blockdsl.graph.tensor import np_dtype
from blockdsl.testing import strategies

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def empty(opset=17):
    model = ModelProto(ir_version=8)
    model.opset_import.append(helper.make_opsetid("", opset))
    model.graph.name = "graph"
    return model


def fully_valid(model):
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return True


# -- validation ---------------------------------------------------------------------------------

TENSORS = st.sampled_from(["x", "y", "i", "b", "w", "n0", "n1", "n2", "missing", ""])
OPERATORS = st.sampled_from(
    ["Add", "MatMul", "Relu", "Not", "Concat", "Transpose", "Where", "Softmax", "Gather", "Reluu"]
)
OUTPUTS = st.sampled_from(["own", "own", "own", "x", "w", "n0", ""])
ATTRIBUTES = st.sampled_from(
    [{}, {}, {}, {"axis": 0}, {"axis": 5}, {"perm": [1, 0]}, {"to": 1}, {"axes": [0]}, {"odd": 1}]
)
NODES = st.tuples(OPERATORS, st.lists(TENSORS, min_size=1, max_size=3), OUTPUTS, ATTRIBUTES)


@given(st.lists(NODES, min_size=1, max_size=4))
def test_growing_finds_what_the_full_check_finds(drawn):
    """Nodes appended by hand, right and wrong, are refused when the checker refuses them."""
    model = empty()
    for name, kind, shape in (
        ("x", FLOAT, [2, 3]),
        ("y", FLOAT, ["n", 3]),
        ("i", INT64, [2, 3]),
        ("b", BOOL, [2, 3]),
    ):
        model.graph.input.append(helper.make_tensor_value_info(name, kind, shape))
    model.graph.initializer.append(helper.make_tensor("w", FLOAT, [3], [1, 2, 3]))
    graph = Graph(model)
    for index, (op_type, inputs, output, attributes) in enumerate(drawn):
        name = f"n{index}" if output == "own" else output
        node = helper.make_node(op_type, inputs, [name], name=f"node{index}", **attributes)
        graph.proto.graph.node.append(node)
        try:
            graph.sync()
        except GraphError:
            accepted = False
        else:
            accepted = True
        assert accepted == fully_valid(graph.proto)
        if not accepted:
            return


@given(strategies.models())
def test_random_models_are_valid(drawn):
    assert fully_valid(drawn.model)
    Graph(drawn.model).check()


def test_handing_out_runs_the_full_check():
    """A type that nobody inferred is found at the latest when the model is handed out."""
    graph = Graph(empty())
    x = graph.add_input("x", FLOAT, [2])
    with activate(graph):
        y = op.Relu(x)
    graph.set_outputs([y])
    graph.proto.graph.output[0].type.tensor_type.elem_type = INT64
    with pytest.raises(GraphError, match="The model is not valid ONNX"):
        graph.check()


def test_checking_does_not_look_at_weights():
    """The cost of a check does not depend on what the weights weigh: they are never serialized."""
    graph = Graph(empty())
    x = graph.add_input("x", FLOAT, [1, 1000])
    w = graph.add_initializer(np.ones((1000, 1000), np.float32), "w")
    with activate(graph):
        graph.set_outputs([x @ w])
    graph.proto.graph.initializer[0].raw_data = b"too short"
    graph.check()


# -- nodes appended by hand ---------------------------------------------------------------------


@pytest.fixture
def graph():
    grown = Graph(empty())
    grown.add_input("x", FLOAT, ["batch", 3])
    grown.add_input("v", FLOAT, [4])
    with activate(grown):
        yield grown


def append(graph, op_type, inputs, outputs, **attributes):
    graph.proto.graph.node.append(helper.make_node(op_type, inputs, outputs, **attributes))


def test_hand_appended_nodes_are_seen(graph):
    append(graph, "Relu", ["x"], ["y"])
    assert str(graph.value("y").type) == "float32[batch, 3]"
    assert (graph.value("y") * 2).shape == ("batch", 3)


@pytest.mark.parametrize(
    ("kind", "declared", "shape"),
    [
        (FLOAT, ["batch", 3], ("batch", 3)),
        (FLOAT, ["batch", 3, 1], ("batch", 3, 1)),
        (INT64, ["batch", 3], None),
    ],
    ids=str,
)
def test_a_node_appended_by_hand_has_the_shape_that_a_value_info_gives_it(kind, declared, shape):
    graph = Graph(empty())
    graph.proto.graph.input.append(helper.make_tensor_value_info("x", FLOAT, [None, 3]))
    graph.proto.graph.input.append(helper.make_tensor_value_info("shape", INT64, [None]))
    graph.proto.graph.value_info.append(helper.make_tensor_value_info("y", kind, declared))
    graph.proto.graph.node.append(helper.make_node("Reshape", ["x", "shape"], ["y"]))
    graph.sync()
    assert graph.type_of("y").dtype == np.float32
    assert graph.type_of("y").shape == shape


def test_hand_appended_initializers_and_inputs_are_seen(graph):
    graph.proto.graph.initializer.append(helper.make_tensor("w", FLOAT, [3], [1, 2, 3]))
    graph.proto.graph.input.append(helper.make_tensor_value_info("t", INT64, [1]))
    append(graph, "Mul", ["x", "w"], ["y"])
    assert str(graph.type_of("y")) == "float32[batch, 3]"
    assert str(graph.type_of("t")) == "int64[1]"
    assert graph.constant_value("w").tolist() == [1, 2, 3]


def test_removing_nodes_by_hand_is_seen(graph):
    y = op.Relu(graph.value("x"))
    graph.proto.graph.node.pop()
    graph.sync()
    assert y not in graph


def test_an_identity_of_a_constant_is_a_constant(graph):
    append(graph, "Constant", [], ["axes"], value=helper.make_tensor("", INT64, [1], [1]))
    append(graph, "Identity", ["axes"], ["same"])
    append(graph, "ReduceSum", ["x", "same"], ["y"], keepdims=0)
    assert graph.type_of("y").shape == ("batch",)


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "message"),
    [
        (
            "Relu",
            ["xx"],
            ["y"],
            "Node '' (Relu) reads 'xx', which no input, initializer or ",
        ),
        ("Relu", ["x"], ["x"], "writes 'x', which is an input or initializer already"),
        ("Reluu", ["x"], ["y"], "No Op registered for Reluu"),
        ("Relu", ["x", "x"], ["y"], "input size 2 not in range"),
        ("Add", ["x", "v"], ["y"], "Add cannot take these inputs (x: float32[batch, 3], v: float"),
    ],
)
def test_wrong_nodes_are_explained(graph, op_type, inputs, outputs, message):
    append(graph, op_type, inputs, outputs)
    with pytest.raises(GraphError) as caught:
        graph.sync()
    assert message in str(caught.value)


# -- operators ----------------------------------------------------------------------------------


def test_unknown_operators_and_attributes_are_explained(graph):
    x = graph.value("x")
    with pytest.raises(OpError, match=r"ONNX has no operator 'Softmx'. Did you mean 'Softmax'"):
        op.Softmx(x)
    with pytest.raises(OpError, match=r"Softmax .*takes no 'axes'. Did you mean 'axis'"):
        op.Softmax(x, axes=1)
    with pytest.raises(OpError, match="Gelu exists from opset 20 on, and the model has opset 17"):
        op.Gelu(x)
    with pytest.raises(OpError, match="Add needs the inputs A, B"):
        op.Add(x)
    with pytest.raises(UnknownNameError, match=r"the model has no such tensor\. Did you mean"):
        op.Relu("xx")


def test_a_refused_operator_leaves_nothing_behind(graph):
    before = graph.proto.SerializeToString()
    with pytest.raises(GraphError):
        op.Add(graph.value("x"), graph.value("v"))
    assert graph.proto.SerializeToString() == before


# -- names --------------------------------------------------------------------------------------


def test_names_are_readable_and_scoped(graph):
    with graph.scope("Loss"):
        (graph.value("x") - 1.0).abs().mean()
    assert [node.name for node in graph.proto.graph.node] == [
        "Loss/Sub",
        "Loss/Abs",
        "Loss/ReduceMean",
    ]
    assert [t.name for t in graph.proto.graph.initializer] == ["constant/float32/1.0"]


def test_names_never_collide_with_what_is_there(graph):
    append(graph, "Relu", ["x"], ["Neg"], name="Neg_1")
    assert str(-graph.value("x")) == "Neg_2"


@given(strategies.models())
def test_building_twice_gives_the_same_model(drawn):
    def rebuilt():
        graph = Graph(ModelProto.FromString(drawn.model.SerializeToString()))
        with activate(graph), graph.scope("again"):
            graph.value(drawn.model.graph.output[0].name).sum().exp()
        return graph.proto.SerializeToString(deterministic=True)

    assert rebuilt() == rebuilt()


# -- who sees the model -------------------------------------------------------------------------


def test_no_model_is_open_outside():
    with pytest.raises(NoBaseError, match=r"with blockdsl\.base\(model\)"):
        current()


def test_a_second_base_is_refused():
    with (
        blockdsl.empty_base(),
        pytest.raises(GraphError, match="Base onnx model already exists"),
        blockdsl.empty_base(),
    ):
        pass


def test_an_error_inside_closes_the_model():
    with pytest.raises(ZeroDivisionError), blockdsl.empty_base():
        1 / 0  # noqa: B018
    with pytest.raises(NoBaseError):
        current()


def test_the_callers_model_is_never_changed(graph):
    append(graph, "Relu", ["x"], ["y"])
    original = graph.proto
    before = original.SerializeToString()
    token = threading.Thread(target=lambda: extend(original))
    token.start()
    token.join()
    assert original.SerializeToString() == before


def extend(model):
    with blockdsl.base(model) as handle:
        current().value("y").exp()
        assert len(handle.model.graph.node) == len(model.graph.node) + 1


def build(number):
    with blockdsl.empty_base() as handle:
        x = blockdsl.input(f"x{number}", shape=(2,))
        for _ in range(20):
            x = x + number
    return [*(i.name for i in handle.model.graph.input), len(handle.model.graph.node)]


def test_threads_do_not_share_the_model():
    found = {}
    threads = [
        threading.Thread(target=lambda n=n: found.__setitem__(n, build(n))) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: [f"x{n}", 20] for n in range(8)}


def test_tasks_do_not_share_the_model():
    async def task(number):
        with blockdsl.empty_base() as handle:
            x = blockdsl.input(f"x{number}", shape=(2,))
            await asyncio.sleep(0)
            x.exp()
            await asyncio.sleep(0)
        return [i.name for i in handle.model.graph.input], len(handle.model.graph.node)

    async def all_tasks():
        return await asyncio.gather(*(task(n) for n in range(5)))

    assert asyncio.run(all_tasks()) == [([f"x{n}"], 1) for n in range(5)]


def test_shapes_that_small_programs_compute_are_followed():
    """As an exporter that folds no constants writes them: ONNX's inference loses the dimensions."""
    graph = Graph(
        onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[batch, 6, 4] x) => (y) {
          zero = Constant <value = int64[1] {0}> ()
          three = Constant <value = int64 {3}> ()
          one = Constant <value = int64[1] {1}> ()
          end = Unsqueeze (three, zero)
          s = Slice (x, zero, end, one)
          shape = Shape (s)
          rows = Gather (shape, one)
          size = Mul (rows, rows)
          minus = Constant <value = int64[1] {-1}> ()
          to = Concat <axis = 0> (minus, size)
          y = Reshape (s, to)
          u = Unsqueeze (y, zero)
          z = Slice (u, zero, rows, one)
        }""")
    )
    shapes = {name: graph.type_of(name).shape for name in "syuz"}
    assert shapes["s"] == ("batch", 3, 4)
    assert shapes["y"][1] == 9
    assert shapes["u"][::2] == (1, 9)
    assert graph.constant_value("size") == 9


@pytest.mark.parametrize("opset", [12, 17])
@pytest.mark.parametrize("operator", ["GreaterOrEqual", "LessOrEqual"])
def test_comparisons_that_are_functions_are_typed(operator, opset):
    with blockdsl.empty_base(opset_version=opset):
        a, b = blockdsl.input("a", shape=("batch", 3)), blockdsl.input("b", shape=())
        found = getattr(op, operator)(a, b)
        assert (found.dtype, found.shape) == (np.bool_, ("batch", 3))


# -- older releases of onnx ----------------------------------------------------------------------


def test_an_onnx_that_stands_float32_in_for_bfloat16_is_not_believed(monkeypatch):
    monkeypatch.setattr(helper, "tensor_dtype_to_np_dtype", lambda _: np.dtype(np.float32))
    with pytest.raises(OpError, match=r"bfloat16 tensors need onnx 1\.19, and .* is installed\."):
        np_dtype.__wrapped__(TensorProto.BFLOAT16)


def test_an_onnx_that_asks_for_the_types_of_absent_inputs(monkeypatch):
    newer = onnx.shape_inference.infer_node_outputs

    def older(schema, node, types, *settings):
        assert all(types[name].SerializeToString() for name in node.input)
        whole = onnx.NodeProto.FromString(node.SerializeToString())
        return newer(schema, whole, types, *settings)

    monkeypatch.setattr(onnx.shape_inference, "infer_node_outputs", older)
    with blockdsl.empty_base():
        x = blockdsl.input("x", shape=(1, 3, 4, 4))
        assert op.Resize(x, None, np.float32([1, 1, 2, 2])).shape == (1, 3, 8, 8)


def test_the_model_is_copied_over_by_hand():
    # As onnxblock's own ForwardBlock and TrainingBlock do: what the index knew is of no model then.
    with blockdsl.empty_base() as handle:
        y = blockdsl.op.BatchNormalization(
            blockdsl.input("x", shape=(2, 3)), *np.ones((4, 3), np.float32)
        )
        graph = blockdsl.graph.current()
        graph.producer(y)
        handle.model.CopyFrom(onnx.ModelProto.FromString(handle.model.SerializeToString()))
        graph.sync()
        assert graph.producer(y) is handle.model.graph.node[0]


def test_the_model_with_all_types():
    class Twice(blockdsl.Block):
        def build(self, x):
            return self.infer_shapes_on_base(), x + x, self.infer_shapes_on_base()

    with blockdsl.empty_base() as handle:
        before, y, after = Twice()(blockdsl.input("x", shape=("batch", 3)))
    assert not before.graph.value_info
    assert [v.name for v in after.graph.value_info] == [y]
    dims = after.graph.value_info[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in dims] == ["batch", 3]
    assert not handle.model.graph.value_info


def test_whoever_holds_the_live_model_sees_the_training_model():
    class Training(blockdsl.TrainingBlock):
        def build(self, x):
            w = blockdsl.parameter("w", "ones", (3, 1))
            return (x @ w).square().mean()

    block = Training()
    block.requires_grad("Training.w")
    with blockdsl.empty_base() as handle:
        held = handle.model
        block(blockdsl.input("x", shape=("batch", 3)))
        assert handle.model is held
        assert held == block.to_model_proto()[0]
        assert held is not block.to_model_proto()[0]
