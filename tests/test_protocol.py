"""ONNX's backend protocol: what `blockdsl.backend` takes and gives, and its error messages."""

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.backend.base import Backend, BackendRep

import blockdsl
from blockdsl import backend
from blockdsl.backend.providers import version_of
from blockdsl.errors import EngineError, FeedError, ModelFileError

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 2] x, float[2] b) => (float[n, 2] sum, float[n, 2] difference)
{ sum = Add(x, b)  difference = Sub(x, b) }"""
X, B = np.float32([[1, 2]]), np.float32([3, 4])


@pytest.fixture
def model():
    return parser.parse_model(MODEL)


def test_it_is_a_backend(model):
    assert issubclass(backend.OnnxBackend, Backend)
    assert isinstance(backend.prepare(model), BackendRep)


@pytest.mark.parametrize(
    "inputs",
    [
        [X, B],
        (X, B),
        {"b": B, "x": X},
        [X.tolist(), B.tolist()],
        [onnxruntime.OrtValue.ortvalue_from_numpy(X), B],
    ],
)
def test_inputs_by_position_and_by_name(model, inputs):
    outputs = backend.prepare(model).run(inputs)
    np.testing.assert_array_equal(outputs[0], [[4, 6]])
    np.testing.assert_array_equal(outputs["difference"], [[-2, -2]])
    assert outputs._fields == ("sum", "difference")


def test_run_model_is_prepare_and_run(model):
    once = backend.run_model(model, [X, B], device="CPU")
    np.testing.assert_array_equal(once.sum, [[4, 6]])


def test_the_model_stays_as_it_is(model):
    model.ir_version = onnx.IR_VERSION  # newer than what some runtimes read
    before = model.SerializeToString()
    backend.run_model(model, [X, B])
    assert model.SerializeToString() == before


def test_a_single_input_needs_no_list():
    node = helper.make_node("Neg", ["x"], ["y"])
    np.testing.assert_array_equal(backend.run_node(node, X)[0], -X)


def test_models_by_path_with_weights_beside_them(tmp_path):
    weight = np.arange(1024, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1024])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1024])],
        [numpy_helper.from_array(weight, "w")],
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=onnx.IR_VERSION)
    path = tmp_path / "model.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="weights")
    assert (tmp_path / "weights").stat().st_size >= weight.nbytes
    (product,) = backend.run_model(path, [weight])
    np.testing.assert_array_equal(product, weight**2)


def test_models_by_path_with_weights_of_bodies_beside_them(tmp_path):
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 2] x, bool c) => (float[n, 2] y) {
      y = If (c) <
        then_branch = t () => (float[n, 2] p) { p = Mul(x, w) },
        else_branch = e () => (float[n, 2] q) { q = Identity(x) }
      >
    }""")
    branch = next(a.g for a in model.graph.node[0].attribute if a.name == "then_branch")
    branch.initializer.append(numpy_helper.from_array(B, "w"))
    path = tmp_path / "model.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    assert (tmp_path / "weights").stat().st_size >= B.nbytes
    np.testing.assert_array_equal(backend.run_model(path, [X, np.array(True)]).y, X * B)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.float8_e5m2])
def test_types_that_numpy_has_not(dtype):
    x = np.asarray([1, -2, 3], dtype)
    elem_type = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=elem_type)],
        "g",
        [helper.make_tensor_value_info("x", elem_type, [3])],
        [helper.make_tensor_value_info("y", elem_type, [3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    if x.dtype != ml_dtypes.bfloat16 and version_of(onnxruntime) < (1, 20):
        with pytest.raises(EngineError, match=r"takes no NumPy arrays|has no kernel of Cast"):
            backend.run_model(model, [x])
        return
    (y,) = backend.run_model(model, [x])
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x)


def test_run_node_of_any_domain_with_optional_inputs_and_outputs():
    clip = helper.make_node("Clip", ["x", "", "high"], ["y"])
    np.testing.assert_array_equal(backend.run_node(clip, [X, np.float32(1)])[0], [[1, 1]])
    gelu = helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")
    assert backend.run_node(gelu, [np.float32([0.0])]).y == 0
    norm = helper.make_node("LayerNormalization", ["x", "s"], ["y", "", "deviation"])
    assert backend.run_node(norm, [X, np.ones(2, np.float32)])._fields == ("y", "deviation")


def test_run_node_of_a_sequence_and_of_text():
    joined = helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)
    np.testing.assert_array_equal(backend.run_node(joined, [[X, X]])[0], [[1, 2], [1, 2]])
    same = helper.make_node("Identity", ["s"], ["t"])
    assert backend.run_node(same, [np.array(["a", "b"])]).t.tolist() == ["a", "b"]


def test_run_node_of_an_opset():
    # Until opset 13, the axes of ReduceSum were an attribute.
    node = helper.make_node("ReduceSum", ["x"], ["y"], axes=[1], keepdims=0)
    np.testing.assert_array_equal(backend.run_node(node, [X], opset_version=12).y, [3])
    info = [(np.dtype(np.float32), (1,))]
    np.testing.assert_array_equal(
        backend.run_node(node, [X], outputs_info=info, opset_version=12).y, [3]
    )


def test_session_options(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    backend.prepare(model, session_options=options, rtol=1e-3).run([X, B])


def test_devices():
    assert backend.supports_device("CPU")
    cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    assert backend.supports_device("CUDA") == backend.supports_device("CUDA:1") == cuda
    assert not backend.supports_device("TPU")


def test_is_compatible(model):
    assert backend.is_compatible(model)
    model.opset_import[0].version = 99
    assert not backend.is_compatible(model)
    assert not backend.is_compatible("nowhere.onnx")


ERRORS = [
    ([X], FeedError, "The model takes 2 inputs (x, b) but was given 1."),
    ({"x": X}, FeedError, "The model is not given its input 'b'."),
    (
        {"x": X, "b": B, "bb": B},
        FeedError,
        "The model has no input 'bb'. Did you mean 'b'?",
    ),
    (
        [X.astype(np.float64), B],
        FeedError,
        "Input 'x' of the model is declared as float32[n, 2] but was given float64[1, 2]. "
        "Convert it: `.astype(np.float32)`.",
    ),
]


@pytest.mark.parametrize(("inputs", "kind", "message"), ERRORS, ids=range(len(ERRORS)))
def test_wrong_inputs(model, inputs, kind, message):
    with pytest.raises(kind) as caught:
        backend.run_model(model, inputs)
    assert str(caught.value) == message


NESTED = {
    "sequence": "(seq(float[n]) s) => (int64 y) { y = SequenceLength(s) }",
    "optional": "(optional(float[n]) s) => (bool y) { y = OptionalHasElement(s) }",
    "optional sequence": "(optional(seq(float[n])) s) => (bool y) { y = OptionalHasElement(s) }",
    "text": "(string[n] s) => (string[n] y) { y = Identity(s) }",
    "bfloat16": "(bfloat16[n] s) => (float[n] y) { y = Cast<to = 1>(s) }",
}


def run_nested(kind, value):
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> g {NESTED[kind]}')
    return backend.run_model(model, [value])[0]


@pytest.mark.parametrize(
    ("kind", "value", "result"),
    [
        ("sequence", [], 0),
        ("sequence", ([1.0], np.float32([2, 3])), 2),
        ("sequence", [onnxruntime.OrtValue.ortvalue_from_numpy(B)] * 3, 3),
        ("optional", None, False),
        ("optional", [1.0, 2.0], True),
        ("optional sequence", None, False),
        ("optional sequence", [B], True),
    ],
)
def test_sequences_and_optionals(kind, value, result):
    assert run_nested(kind, value) == result


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("sequence", None, "is seq(tensor(float)) but was given a NoneType. Give a list of"),
        ("sequence", B, "is seq(tensor(float)) but was given a ndarray. Give a list of tensors."),
        ("sequence", [B, None], "Input 's[1]' is float32[unknown rank] but was given a NoneType."),
        ("sequence", [B.astype(float)], "Input 's[0]' of the model is declared as float32"),
        ("optional", np.int64([1]), "is declared as float32[unknown rank] but was given int64[1]."),
        ("text", np.array([b"a"]), "but was given np.bytes_(b'a') in it, which is no string."),
        ("text", np.array(["a", None]), "but was given None in it, which is no string."),
        ("text", np.array(["a\0b"]), "'a\\x00b' in it: the runtime ends a string at a NUL"),
        ("bfloat16", B, "float32[2]. Convert it: `.astype(ml_dtypes.bfloat16)`."),
    ],
)
def test_wrong_nested_values(kind, value, message):
    with pytest.raises(FeedError) as caught:
        run_nested(kind, value)
    assert message in str(caught.value).replace("given b'a'", "given np.bytes_(b'a')")


def test_wrong_session_options(model):
    with pytest.raises(EngineError, match="are onnxruntime's SessionOptions, not a dict"):
        backend.prepare(model, session_options={})


def test_wrong_models(model, tmp_path):
    with pytest.raises(ModelFileError, match=r"nowhere\.onnx' does not exist"):
        backend.prepare(tmp_path / "nowhere.onnx")
    with pytest.raises(ModelFileError, match="not a bytes"):
        backend.prepare(model.SerializeToString())
    with pytest.raises(EngineError, match="Unsupported device type: 'TPU'"):
        backend.prepare(model, "TPU")


def test_wrong_nodes():
    node = helper.make_node("Add", ["a", "b"], ["c"])
    with pytest.raises(FeedError, match=r"The node Add takes 2 inputs \(a, b\) but was given 1\."):
        backend.run_node(node, [X])
    with pytest.raises(FeedError, match="Input 'b' of the node is a object, which is no tensor"):
        backend.run_node(node, [X, object()])
    with pytest.raises(FeedError, match="The node Add is not given its input 'b'"):
        backend.run_node(node, {"a": X})
    with pytest.raises(FeedError, match=r"A node is an onnx\.NodeProto, not a str"):
        backend.run_node("Add", [X])
    twice = helper.make_node("Add", ["a", "a"], ["c"])
    np.testing.assert_array_equal(backend.run_node(twice, [X, X.copy()])[0], X + X)
    with pytest.raises(FeedError, match="The node Add reads 'a' more than once and was given diff"):
        backend.run_node(twice, [X, -X])
    missing = helper.make_node("Nothing", ["a"], ["c"])
    with pytest.raises(EngineError, match="Nothing"):
        backend.run_node(missing, [X])


def test_what_fails_in_a_run_is_named():
    node = helper.make_node("Gather", ["x", "i"], ["y"])
    with pytest.raises(blockdsl.BlockError, match="ONNX Runtime failed in the model: Gather"):
        backend.run_node(node, [X, np.int64([9])])
