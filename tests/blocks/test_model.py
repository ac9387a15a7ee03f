"""ONNX models as blocks."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

import blockdsl
from blockdsl import op
from blockdsl.artifacts import LossType
from blockdsl.blocks import Linear, Model
from blockdsl.errors import GraphError, ModelFileError, OpError
from blockdsl.graph.control import repeat
from tests.engines import run
from tests.runs import Run, forward, generate, normal, weight

X = normal(5, 4)


def encoder(opset=17, out=3):
    def build(x):
        y = (x @ weight("fc.weight", 4, out) + weight("fc.bias", out)).tanh()
        return y / (y.square().sum(-1, keepdims=True) + 1).sqrt()

    return forward(build, ("N", 4), opset=opset)


ENCODER, SQUARE = encoder(), encoder(out=4)


def joined(calls, *shapes, opset=17):
    """The model of a block that calls others."""

    class Net(blockdsl.ForwardBlock):
        def __init__(self):
            self.parts = {}

        def build(self, *inputs):
            return calls(self.parts, *inputs)

    net = Net()
    with blockdsl.empty_base(opset_version=opset):
        net(*(blockdsl.input(f"in{i}", shape=shape) for i, shape in enumerate(shapes)))
    return net.to_model_proto()


def names_of(model):
    return [t.name for t in model.graph.initializer if "." in t.name and "constant" not in t.name]


def one_call(model):
    def calls(parts, x):
        parts["model"] = Model(model)
        return parts["model"](x)

    return calls


@pytest.mark.parametrize("as_file", [False, True])
def test_calls_share_weights(tmp_path, as_file):
    model = encoder()
    onnx.save(model, tmp_path / "encoder.onnx", save_as_external_data=True, size_threshold=0)
    block = Model(tmp_path / "encoder.onnx") if as_file else Model(encoder())

    class Siamese(blockdsl.ForwardBlock):
        def __init__(self):
            self.encoder = block

        def build(self, a, b):
            return self.encoder(a) - self.encoder(x=b)

    net = Siamese()
    with blockdsl.empty_base():
        net(*(blockdsl.input(name, shape=("N", 4)) for name in "ab"))
    merged = net.to_model_proto()
    assert names_of(merged) == ["Siamese/encoder/fc.weight", "Siamese/encoder/fc.bias"]
    (difference,) = run(merged, {"a": X, "b": 2 * X})
    (first,), (second,) = (run(encoder(), {"x": x}) for x in (X, 2 * X))
    np.testing.assert_allclose(difference, first - second, rtol=1e-5, atol=1e-6)
    names = [node.name for node in merged.graph.node]
    assert len(set(names)) == len(names)
    assert all(name.startswith("Siamese/") for name in names)


@pytest.mark.parametrize("opset", [13, 15, 17, 18, 21])
@pytest.mark.parametrize("own", [11, 13, 17, 21])
def test_opsets_are_reconciled(own, opset):
    model = encoder(own)
    merged = joined(one_call(model), ("N", 4), opset=opset)
    (expected,), (result,) = run(model, {"x": X}), run(merged, {"in0": X})
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert names_of(merged) == ["Net/parts.model/fc.weight", "Net/parts.model/fc.bias"]


LOCAL = parser.parse_model("""
<ir_version: 8, opset_import: ["": 17, "own": 1]>
two (float[N, 4] x, bool c) => (float[N, 4] y, float[N, 4] x) <float[4] w = {1, 2, 3, 4}>
{
    y = If (c) <
        then_branch = a () => (float[N, 4] p) <float[4] v = {4, 3, 2, 1}> {
            q = Mul (x, v)  p = own.Scaled (q, w)
        },
        else_branch = b () => (float[N, 4] r) { r = Neg (x) }
    >
}
<domain: "own", opset_import: ["": 17]>
Scaled (x, w) => (y) { y = Mul (x, w) }
""")


def test_bodies_functions_and_several_outputs():
    def calls(parts, x):
        parts["model"] = Model(LOCAL)
        y, passed = parts["model"](x, np.array(True))
        z, _ = parts["model"](y, c=False)
        return y, z, passed

    merged = joined(calls, ("N", 4))
    assert len(merged.functions) == 1
    y, z, passed = run(merged, {"in0": X})
    np.testing.assert_allclose(y, X * [4, 6, 6, 4], rtol=1e-6)
    np.testing.assert_allclose(z, -y)
    np.testing.assert_array_equal(passed, X)


def test_functions_of_one_name_are_told_apart():
    other = onnx.ModelProto.FromString(LOCAL.SerializeToString())
    other.functions[0].node[0].op_type = "Add"

    def calls(parts, x):
        parts["a"], parts["b"] = Model(LOCAL), Model(other)
        return [parts[n](x, np.array(True))[0] for n in "aba"]

    merged = joined(lambda parts, x: tuple(calls(parts, x)), ("N", 4))
    assert [f.domain for f in merged.functions] == ["own", "own.Net.parts.b"]
    first, second, third = run(merged, {"in0": X})
    np.testing.assert_allclose(first, X * [4, 6, 6, 4], rtol=1e-6)
    np.testing.assert_allclose(second, X * [4, 3, 2, 1] + [1, 2, 3, 4], rtol=1e-6)
    np.testing.assert_array_equal(first, third)


def test_in_the_body_of_a_loop():
    def calls(parts, x):
        parts["model"] = Model(SQUARE)
        return repeat(lambda _, s: [parts["model"](s[0])], [x], op.Identity(np.array(2)))[0]

    merged = joined(calls, ("N", 4))
    assert names_of(merged) == ["Net/parts.model/fc.weight", "Net/parts.model/fc.bias"]
    (once,) = run(SQUARE, {"x": X})
    (twice,) = run(SQUARE, {"x": once})
    np.testing.assert_allclose(run(merged, {"in0": X})[0], twice, rtol=1e-5)


def teacher():
    def build(x):
        scale, shift = weight("bn.scale", 4), weight("bn.shift", 4)
        mean, var = weight("bn.mean", 4), weight("bn.var", 4, low=1, high=2)
        y, *_ = op.BatchNormalization(x, scale, shift, mean, var, training_mode=1, outputs=3)
        dropped = op.Dropout(y, np.float32(0.5), np.array(True))
        table = op.Constant(value=onnx.numpy_helper.from_array(normal(4, 3)))
        return (dropped @ table).tanh() * 3

    return forward(build, ("N", 4))


class Distilled(blockdsl.ForwardBlock):
    def __init__(self, trainable):
        self.teacher = Model(teacher(), trainable=trainable)
        self.student = Linear(4, 3)

    def build(self, x):
        return (self.student(x) - self.teacher(x)).square().mean()


def test_a_student_learns_from_a_teacher_that_stays(tmp_path, engine):
    net = Distilled(trainable=False)
    with blockdsl.empty_base():
        net(blockdsl.input("x", shape=("N", 4)))
    trained = Run(generate(tmp_path, net.to_model_proto(), loss=None), engine)
    assert sorted(trained.values()) == ["Distilled/student.bias", "Distilled/student.weight"]
    losses = [trained.step(X) for _ in range(2)]
    assert losses[1] < losses[0]  # by the same mask: there is none
    values = trained.values()
    student = X @ values["Distilled/student.weight"] + values["Distilled/student.bias"]
    evaluated = onnx.ModelProto.FromString(teacher().SerializeToString())
    for node in evaluated.graph.node:
        if node.op_type == "Dropout":
            node.input[2] = ""
        if node.op_type == "BatchNormalization":
            del node.output[1:]
            del node.attribute[:]
    (labels,) = run(evaluated, {"x": X})
    expected = ((student - labels) ** 2).mean()
    np.testing.assert_allclose(float(trained.module(X)), expected, rtol=1e-4)


def test_a_trainable_teacher_trains(tmp_path):
    net = Distilled(trainable=True)
    with blockdsl.empty_base():
        net(blockdsl.input("x", shape=("N", 4)))
    trained = Run(generate(tmp_path, net.to_model_proto(), loss=None), "session")
    assert {"Distilled/teacher/bn.scale", "Distilled/teacher/bn.mean"} < trained.values().keys()
    requested = ["Distilled/teacher/bn.scale"]
    frozen = Distilled(trainable=False)
    with blockdsl.empty_base():
        frozen(blockdsl.input("x", shape=("N", 4)))
    folder = generate(tmp_path, frozen.to_model_proto(), loss=None, requires_grad=requested)
    assert list(Run(folder, "session").values()) == requested


def test_gradients_flow_through_a_frozen_model(tmp_path, engine):
    def calls(parts, x):
        parts["adapter"], parts["model"] = Linear(4, 4), Model(ENCODER, trainable=False)
        return parts["model"](parts["adapter"](x))

    model = joined(calls, ("N", 4))
    trained = Run(generate(tmp_path, model, loss=LossType.MSELoss), engine)
    assert sorted(trained.values()) == ["Net/parts.adapter.bias", "Net/parts.adapter.weight"]
    trained.train(X, np.ones((5, 3), np.float32))


def with_(model, change):
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    change(changed)
    return changed


def newer_body(model):
    model.opset_import[0].version = 11
    then = model.graph.node[0].attribute[0].g
    then.node.append(helper.make_node("Softmax", ["p"], ["s"]))
    then.output[0].name = "s"


SPLIT = forward(
    lambda x: op.Split(x, num_outputs=2, axis=1, outputs=2)[0].exp(), ("N", 4), opset=18
)
AVERAGED = forward(
    lambda x: op.ReduceMean(x, axes=[1], noop_with_empty_axes=0).exp(), ("N", 4), opset=18
)
CALLED = [
    (lambda x: Model(ENCODER)(), OpError, r"takes the inputs x: 'x' is missing"),
    (lambda x: Model(ENCODER)(x, x), OpError, "takes the inputs x: 2 were given"),
    (lambda x: Model(ENCODER)(x, x=x), OpError, "'x' is given twice"),
    (lambda x: Model(ENCODER)(y=x), OpError, "'y' is none of them. Known names: 'x'"),
    (
        lambda x: Model(ENCODER)(x.cast("float16")),
        OpError,
        r"float32\[N, 4\] as its input 'x', and",
    ),
    (lambda x: Model(ENCODER)(x.unsqueeze(0)), OpError, "Cast or reshape it first"),
    (lambda x: Model(AVERAGED)(x), OpError, "onnx cannot convert it: noop_with_empty_axes for"),
    (
        lambda x: Model(SPLIT)(x),
        OpError,
        r"opset_version=18.*onnx cannot convert it: .* Split",
    ),
    (
        lambda x: Model(with_(LOCAL, newer_body))(x, True),
        OpError,
        "cannot convert Softmax in a body",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), CALLED)
def test_calls_that_are_refused(call, kind, message):
    with blockdsl.empty_base():
        x = blockdsl.input("x", shape=("N", 4))
        with pytest.raises(kind, match=message):
            call(x)


def external(model):
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL


def no_outputs(model):
    del model.graph.output[:]


def test_models_that_are_refused(tmp_path):
    (tmp_path / "text.onnx").write_text("no model")
    for path in ("none.onnx", "text.onnx"):
        with pytest.raises(ModelFileError, match=rf"{path}' cannot be read"):
            Model(tmp_path / path)
    with pytest.raises(GraphError, match=r"lie in another file\. Pass the path"):
        Model(with_(encoder(), external))
    with pytest.raises(GraphError, match="has no outputs"):
        Model(with_(encoder(), no_outputs))
