"""Faults seen in the field, in onnxruntime-training 1.19.2: here each does what is right.

Every test names, in its comment, what happens there.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import blockdsl
from blockdsl import blocks, loss, op, optim
from blockdsl.api import CheckpointState
from blockdsl.artifacts import LossType
from blockdsl.backend import checkpoint as codec
from blockdsl.backend.limits import runtime_limits
from blockdsl.errors import BlockError, BlockWarning
from blockdsl.graph import current
from blockdsl.testing import check_gradients
from tests.runs import Run, forward, generate, normal, weight


def trains(folder, engine, build, shape, target, **settings):
    """Whether a model of one input trains; gives its gradients' right values a check, too."""
    model = forward(build, shape)
    x = normal(*(4 if d == "batch" else d for d in shape))
    check_gradients(model, {"x": x})
    generate(folder, model, **settings)
    return Run(folder, engine).train(x, target)


# -- batch normalisation -----------------------------------------------------------------------


def normalised(x, training):
    """Conv -> BatchNormalization -> GlobalAveragePool -> Gemm."""
    mean = current().add_initializer(np.full(4, 0.3, np.float32), "mean")
    var = current().add_initializer(np.full(4, 2.0, np.float32), "var")
    y = op.Conv(x, weight("conv", 4, 3, 3, 3))
    scale, bias = weight("scale", 4, low=0.5, high=1.5), weight("bias", 4)
    if training:
        y, *_ = op.BatchNormalization(y, scale, bias, mean, var, training_mode=1, outputs=3)
    else:
        y = op.BatchNormalization(y, scale, bias, mean, var)
    y = op.Flatten(op.GlobalAveragePool(y))
    return op.Gemm(y, weight("head", 4, 5), weight("head.bias", 5))


IMAGES, CLASSES = normal(6, 3, 8, 8), np.arange(6) % 5


def test_1_frozen_batch_norm_stays_frozen(tmp_path, engine):
    # It runs on batch statistics and changes its frozen mean and variance.
    model = forward(lambda x: normalised(x, training=False), ("batch", 3, 8, 8))
    generate(
        tmp_path,
        model,
        loss=LossType.CrossEntropyLoss,
        requires_grad=["head", "head.bias"],
        frozen_params=["conv", "scale", "bias", "mean", "var"],
    )
    run = Run(tmp_path, engine)
    before = run.values()
    assert float(run.evaluate(IMAGES, CLASSES)) == pytest.approx(float(run.module(IMAGES, CLASSES)))
    run.train(IMAGES, CLASSES)
    assert float(run.evaluate(IMAGES, CLASSES)) == pytest.approx(float(run.module(IMAGES, CLASSES)))
    changed = {n for n, value in run.values().items() if not np.array_equal(value, before[n])}
    assert changed == {"head", "head.bias"}


@pytest.mark.parametrize("opset", [14, 17])
def test_2_trained_batch_norm(tmp_path, opset, engine):
    # The evaluation model cannot be loaded: "outputs should be 1".
    model = forward(lambda x: normalised(x, training=True), ("batch", 3, 8, 8), opset=opset)
    logits = model.graph.output[0].name
    generate(
        tmp_path,
        model,
        loss=LossType.CrossEntropyLoss,
        additional_output_names=[logits],
    )
    (node,) = [
        n
        for n in onnx.load(tmp_path / "eval_model.onnx").graph.node
        if n.op_type == "BatchNormalization"
    ]
    assert len(node.output) == 1
    run = Run(tmp_path, engine)
    before = run.values()
    convolved = onnx.reference.ReferenceEvaluator(
        helper.make_model(
            helper.make_graph(
                [helper.make_node("Conv", ["x", "conv"], ["y"])],
                "conv",
                [helper.make_tensor_value_info(n, 1, None) for n in ("x", "conv")],
                [helper.make_tensor_value_info("y", 1, None)],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
        )
    ).run(None, {"x": IMAGES, "conv": before["conv"]})[0]
    run.step(IMAGES, CLASSES)
    after = run.values()
    for name, measured in (("mean", convolved.mean((0, 2, 3))), ("var", convolved.var((0, 2, 3)))):
        expected = 0.9 * before[name] + 0.1 * measured
        np.testing.assert_allclose(after[name], expected, rtol=1e-4, atol=1e-5)
    run.train(IMAGES, CLASSES)
    _, evaluated = run.evaluate(IMAGES, CLASSES)
    run.module.export_model_for_inferencing(tmp_path / "model.onnx", [logits])
    exported = {
        t.name: numpy_helper.to_array(t)
        for t in onnx.load(tmp_path / "model.onnx").graph.initializer
    }
    assert np.array_equal(exported["mean"], run.values()["mean"])
    session = onnxruntime.InferenceSession(
        tmp_path / "model.onnx", providers=["CPUExecutionProvider"]
    )
    np.testing.assert_allclose(session.run(None, {"x": IMAGES})[0], evaluated, rtol=1e-4, atol=1e-5)


# -- optional outputs, labels, losses ----------------------------------------------------------


def test_3_layer_norm_with_one_output(tmp_path, engine):
    # An internal index error while building.
    def build(x):
        y = op.LayerNormalization(x, weight("scale", 6, low=0.5, high=1.5), weight("bias", 6))
        return y @ weight("w", 6, 2)

    trains(tmp_path, engine, build, ("batch", 6), np.zeros((4, 2), np.float32))


def test_3_dropout_without_a_mask(tmp_path, engine):
    # An internal index error while building.
    def build(x):
        return op.Dropout(x @ weight("w", 6, 2), np.float32(0.25), np.array(True))

    generate(tmp_path, forward(build, ("batch", 6)))
    run, x, target = Run(tmp_path, engine), normal(400, 6), np.zeros((400, 2), np.float32)
    assert run.train(x, target)
    assert run.module(x, target) != run.module(x, target)  # it drops
    assert run.evaluate(x, target) == run.evaluate(x, target)


@pytest.mark.parametrize(
    ("shape", "axis", "labels"),
    [(("batch", 5, 6, 6), None, ["batch", 6, 6]), (("batch", 7, 5), -1, ["batch", 7])],
)
def test_4_labels_of_images_and_sequences(tmp_path, shape, axis, labels, engine):
    # Labels are declared (N, 5, 6); (N, T, V) is refused.
    model = forward(lambda x: x * weight("w", 1), shape)
    generate(tmp_path, model, loss=loss.CrossEntropyLoss(axis=axis))
    found = onnx.load(tmp_path / "training_model.onnx").graph.input[1].type.tensor_type
    assert [d.dim_param or d.dim_value for d in found.shape.dim] == labels
    assert found.elem_type == TensorProto.INT64
    x = normal(*(3 if d == "batch" else d for d in shape))
    right = np.moveaxis(x, axis or 1, -1).argmax(axis=-1)
    losses = Run(tmp_path, engine).train(x, right, steps=20)
    scores = np.moveaxis(x * weight_of(model), axis or 1, -1).astype(np.float64)
    log_p = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    expected = -np.take_along_axis(log_p, right[..., None], -1).mean()
    assert losses[0] == pytest.approx(expected, rel=1e-4)


def weight_of(model):
    return numpy_helper.to_array(model.graph.initializer[0])


@pytest.mark.parametrize(("logit", "target", "value"), [(20, 0, 20), (100, 1, 0), (-200, 1, 200)])
def test_5_binary_cross_entropy_of_large_logits(tmp_path, logit, target, value, engine):
    # inf, with NaN for gradients.
    model = forward(lambda x: x * current().add_initializer(np.ones(1, np.float32), "w"), ("N", 1))
    generate(tmp_path, model, loss=LossType.BCEWithLogitsLoss)
    run = Run(tmp_path, engine)
    batch = np.full((1, 1), logit, np.float32), np.full((1, 1), target, np.float32)
    assert float(run.module(*batch)) == pytest.approx(value, abs=1e-6)
    slope = 1 / (1 + np.exp(-float(logit))) - target
    assert run.gradients(*batch)["w"] == pytest.approx(logit * slope, abs=1e-4)


def test_6_class_weights(tmp_path, engine):
    # ValueError: the truth value of an array is ambiguous.
    weights = np.array([0.2, 1.0, 3.0], np.float32)
    model = forward(lambda x: x @ weight("w", 4, 3), ("batch", 4))
    generate(tmp_path, model, loss=loss.CrossEntropyLoss(weight=weights))
    x, labels = normal(5, 4), np.array([0, 1, 2, 2, 0])
    scores = (x @ weight_of(model)).astype(np.float64)
    log_p = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    expected = -np.average(log_p[np.arange(5), labels], weights=weights[labels])
    run = Run(tmp_path, engine)
    assert float(run.module(x, labels)) == pytest.approx(expected, rel=1e-5)
    run.train(x, labels)


@pytest.mark.parametrize("kind", [loss.MSELoss, loss.BCEWithLogitsLoss])
def test_6_losses_of_the_elements(tmp_path, kind, engine):
    # TypeError.
    class Total(blockdsl.Block):
        def build(self, y):
            losses = kind(reduction="none")(y)
            assert losses.shape == y.shape
            return losses.sum(axis=1).mean()

    generate(tmp_path, forward(lambda x: x @ weight("w", 4, 3), ("batch", 4)), loss=Total())
    Run(tmp_path, engine).train(normal(5, 4), np.full((5, 3), 0.5, np.float32))


def test_7_two_outputs_and_a_loss_of_one(tmp_path):
    # The second output silently becomes the target.
    model = forward(lambda x: (x @ weight("a", 4, 3), x @ weight("b", 4, 3)), ("batch", 4))
    with pytest.raises(BlockError, match=r"has 2 outputs .* loss_input_names="):
        generate(tmp_path, model)


class TwoTerms(blockdsl.Block):
    """Two losses whose targets have one name and two shapes."""

    def __init__(self, name="target"):
        self.first, self.second, self.name = loss.MSELoss(), loss.MSELoss(), name

    def build(self, a, b):
        return self.first(a) + self.second(b, self.name)


def test_8_two_losses_with_one_name_for_their_targets(tmp_path):
    # They share one input, and the error is about shapes.
    model = forward(lambda x: (x @ weight("a", 4, 3), x @ weight("b", 4, 2)), ("batch", 4))
    with pytest.raises(BlockError, match=r"target.*target_name='target2'"):
        generate(tmp_path, model, loss=TwoTerms())
    generate(tmp_path, model, loss=TwoTerms("target2"))
    inputs = [i.name for i in onnx.load(tmp_path / "training_model.onnx").graph.input]
    assert inputs[:3] == ["x", "target", "target2"]


# -- what is trained ---------------------------------------------------------------------------


def reshaped(x):
    shape = current().add_initializer(np.array([-1, 6]), "shp")
    return op.Reshape(x, shape) @ weight("w", 6, 2)


def test_9_integers_among_the_parameters(tmp_path, engine):
    # C++: failed to find NodeArg shp_grad.
    model = forward(reshaped, ("batch", 2, 3))
    everything = [t.name for t in model.graph.initializer]
    assert "shp" in everything
    with pytest.raises(BlockError, match=r"'shp' has the type int64\[2\]"):
        generate(tmp_path, model, requires_grad=everything)
    generate(tmp_path, model, requires_grad="all")
    assert list(codec.load(tmp_path / "checkpoint").trainable) == ["w"]


def test_10_nothing_said_of_what_is_trained(tmp_path, engine):
    # IndexError.
    trains(
        tmp_path,
        engine,
        lambda x: (x @ weight("w", 6, 2) + weight("b", 2)).tanh(),
        ("batch", 6),
        np.zeros((4, 2), np.float32),
        requires_grad=None,
    )
    assert list(codec.load(tmp_path / "checkpoint").trainable) == ["w", "b"]


def test_11_unknown_names(tmp_path):
    # Accepted in frozen_params without a word; a C++ error in requires_grad.
    model = forward(lambda x: x @ weight("layer.weight", 6, 2), ("batch", 6))
    with pytest.raises(BlockError, match=r"requires_grad.*Did you mean 'layer\.weight'"):
        generate(tmp_path, model, requires_grad=["layer.weigth"])
    with pytest.warns(BlockWarning, match=r"frozen_params.*Did you mean 'layer\.weight'"):
        generate(tmp_path, model, frozen_params=["layer.weigth"])


@pytest.mark.parametrize("opset", [9, 10])
def test_12_old_opsets(tmp_path, opset, engine):
    # An invalid gradient node.
    def build(x):
        y = op.Gemm(x, weight("w", 6, 8), weight("b", 8)).clip(-2, 2)
        return op.Softmax(op.Gemm(y, weight("v", 8, 3), weight("c", 3)), axis=1)

    model = forward(build, ("batch", 6), opset=opset)
    check_gradients(model, {"x": normal(4, 6)})
    generate(tmp_path, model)
    Run(tmp_path, engine).train(normal(4, 6), np.eye(4, 3, dtype=np.float32))


@pytest.mark.parametrize("ir_version", [8, 10, onnx.IR_VERSION])
def test_13_versions_follow_the_model_and_the_runtime(tmp_path, ir_version, engine):
    # The optimizer model is stamped with an IR version that the runtime refuses.
    model = forward(lambda x: x @ weight("w", 6, 2), ("batch", 6))
    model.ir_version = ir_version
    generate(tmp_path, model)
    for kind in ("training", "eval", "optimizer"):
        made = onnx.load(tmp_path / f"{kind}_model.onnx")
        assert made.ir_version <= runtime_limits().ir_version
        assert {o.domain: o.version for o in made.opset_import}[""] == 17
    Run(tmp_path, engine).train(normal(4, 6), np.zeros((4, 2), np.float32))


# -- operators ---------------------------------------------------------------------------------


OPERATORS = {
    # 14: the artifacts are built, then the session has no kernel
    "Resize nearest": lambda x: op.Resize(x, scales=np.float32([1, 1, 2, 2]), mode="nearest"),
    "Resize linear": lambda x: op.Resize(x, scales=np.float32([1, 1, 2, 2]), mode="linear"),
    "ConvTranspose": lambda x: op.ConvTranspose(
        x, weight("kernel", 4, 2, 2, 2), weight("kernel.bias", 2), strides=[2, 2]
    ),
    # 17: the gradient builder has not been registered
    "Atan": op.Atan,
    "LeakyRelu": op.LeakyRelu,
    "ReduceMin": lambda x: op.ReduceMin(x, axes=[2, 3]),
    "Einsum": lambda x: op.Einsum(x, weight("m", 5, 5), equation="bchw,wv->bvh"),
    "PRelu": lambda x: op.PRelu(x, weight("slope", 4, 1, 1)),
    "Celu": lambda x: op.Celu(x, alpha=0.7),
    "Softplus": op.Softplus,
    "HardSwish": op.HardSwish,
    "Mish": lambda x: x * op.Softplus(x).tanh(),
    "InstanceNormalization": lambda x: op.InstanceNormalization(
        x, weight("scale", 4, low=0.5), weight("bias", 4)
    ),
    "LRN": lambda x: op.LRN(x, size=3),
    "GlobalMaxPool": op.GlobalMaxPool,
    "DepthToSpace": lambda x: op.DepthToSpace(x, blocksize=2),
    "GridSample": lambda x: op.GridSample(x, grid(), align_corners=1),
    "CumSum": lambda x: op.CumSum(x, np.array(2)),
    "RNN": lambda x: op.RNN(
        sequence(x), weight("W", 1, 3, 5), weight("R", 1, 3, 3), hidden_size=3, outputs=1
    ),
    # 18: unreachable; not supported
    "Pow in its exponent": lambda x: op.Pow(x.exp(), weight("exponent", 5)),
    "Pad reflect": lambda x: op.Pad(x, pads=[0, 0, 1, 2, 0, 0, 2, 1], mode="reflect"),
    "Pad edge": lambda x: op.Pad(x, pads=[0, 0, 1, 2, 0, 0, 2, 1], mode="edge"),
    # 15: an invalid graph
    "LSTM": lambda x: op.LSTM(
        sequence(x), weight("W", 1, 12, 5), weight("R", 1, 12, 3), hidden_size=3, outputs=1
    ),
    "GRU": lambda x: op.GRU(
        sequence(x), weight("W", 1, 9, 5), weight("R", 1, 9, 3), hidden_size=3, outputs=1
    ),
}


def grid():
    """A sampling grid that is trained too."""
    return weight("grid", 2, 3, 3, 2)


def sequence(x):
    """(batch 2, channels 4, 5, 5) as (length 20, batch 2, features 5)."""
    return op.Reshape(op.Transpose(x, perm=[1, 2, 0, 3]), [20, 2, 5])


def check_operator(folder, engine, build, opset=17):
    """A trained tensor before the operator; its gradient is right, and the loss falls."""

    def whole(x):
        y = build(x * weight("before", 1, 4, 5, 5, low=0.4, high=1.0))
        return y[0] if isinstance(y, tuple) else y

    model = forward(whole, (2, 4, 5, 5), opset=opset)
    x = normal(2, 4, 5, 5)
    generate(folder, model)
    trained = list(codec.load(folder / "checkpoint").trainable)
    check_gradients(model, {"x": x}, wrt=["x", *trained])
    shape = [d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim]
    Run(folder, engine).train(x, np.zeros(shape, np.float32))


@pytest.mark.parametrize("name", OPERATORS)
def test_14_15_17_18_operators(tmp_path, name, engine):
    check_operator(tmp_path, engine, OPERATORS[name])


@pytest.mark.parametrize(
    ("opset", "build"),
    [
        (18, op.Mish),
        (
            21,
            lambda x: op.GroupNormalization(
                x, weight("scale", 4, low=0.5), weight("bias", 4), num_groups=2
            ),
        ),
    ],
    ids=["Mish", "GroupNormalization"],
)
def test_17_newer_operators(tmp_path, opset, build, engine):
    check_operator(tmp_path, engine, build, opset)


def test_16_if(tmp_path, engine):
    # The process aborts.
    branches = {
        "then_branch": helper.make_graph(
            [helper.make_node("Mul", ["y", "y"], ["then"])],
            "then",
            [],
            [helper.make_tensor_value_info("then", TensorProto.FLOAT, [4, 2])],
        ),
        "else_branch": helper.make_graph(
            [helper.make_node("Neg", ["y"], ["else"])],
            "else",
            [],
            [helper.make_tensor_value_info("else", TensorProto.FLOAT, [4, 2])],
        ),
    }
    node = helper.make_node("If", ["condition"], ["chosen"], **branches)
    model = with_node(node, [4, 2], [("condition", TensorProto.BOOL, [])])
    for condition in (True, False):
        check_gradients(model, {"x": normal(4, 6), "condition": np.array(condition)})
    generate(tmp_path, model)
    run = Run(tmp_path, engine)
    for condition in (True, False):
        run.train(normal(4, 6), np.array(condition), np.zeros((4, 2), np.float32))


def test_16_scan(tmp_path, engine):
    # The gradient of Scan is not registered.
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Add", ["total", "row"], ["sum"]),
            helper.make_node("Identity", ["sum"], ["running"]),
        ],
        "body",
        [info("total", TensorProto.FLOAT, [2]), info("row", TensorProto.FLOAT, [2])],
        [info("sum", TensorProto.FLOAT, [2]), info("running", TensorProto.FLOAT, [2])],
    )
    node = helper.make_node("Scan", ["zero", "y"], ["end", "chosen"], body=body, num_scan_inputs=1)
    model = with_node(node, [4, 2])
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(2, np.float32), "zero"))
    check_gradients(model, {"x": normal(4, 6)}, wrt=["x", "w"])
    generate(tmp_path, model, requires_grad=["w"])
    Run(tmp_path, engine).train(normal(4, 6), np.zeros((4, 2), np.float32))


def with_node(node, shape, inputs=()):
    """A model of the product `y` of `x` and a weight, and a node that makes `chosen` of it."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), node],
        "graph",
        [info("x", TensorProto.FLOAT, [4, 6]), *(info(*i) for i in inputs)],
        [info("chosen", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(normal(6, 2), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# -- state, types, names -----------------------------------------------------------------------


def test_19_the_learning_rate_is_saved(tmp_path, engine):
    # It is 0.001 again.
    generate(tmp_path, forward(lambda x: x @ weight("w", 6, 2), ("batch", 6)))
    run = Run(tmp_path, engine)
    run.optimizer.set_learning_rate(0.05)
    CheckpointState.save_checkpoint(run.state, tmp_path / "checkpoint", True)
    assert Run(tmp_path, engine).optimizer.get_learning_rate() == pytest.approx(0.05)


LOSSES = {
    "MSE": (loss.MSELoss(), False),
    "L1": (loss.L1Loss(), False),
    "BCE": (loss.BCEWithLogitsLoss(), False),
    "cross entropy": (loss.CrossEntropyLoss(), True),
    "smoothed cross entropy": (loss.CrossEntropyLoss(label_smoothing=0.1), True),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", LOSSES)
def test_20_other_float_types(tmp_path, name, dtype):
    # The constants are float32: types differ.
    kind, classes = LOSSES[name]
    dtype = helper.tensor_dtype_to_np_dtype(
        {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}.get(
            dtype, TensorProto.DOUBLE
        )
    )
    model = forward(lambda x: x @ weight("w", 6, 3, dtype=dtype), ("batch", 6), dtype=dtype)
    generate(tmp_path, model, loss=kind)
    if dtype.name == "bfloat16":
        return  # ONNX Runtime's CPU has no kernels for it
    run = Run(tmp_path, "session")
    target = np.arange(4) % 3 if classes else np.full((4, 3), 0.5, dtype)
    run.train(normal(4, 6, dtype=dtype), target, rate=0.05)
    assert run.values()["w"].dtype == dtype


def test_21_a_graph_input_is_no_parameter(tmp_path):
    # IndexError.
    model = forward(lambda x: x @ weight("w", 6, 2), ("batch", 6))
    with pytest.raises(BlockError, match=r"x is an input of the model.*blockdsl\.grad\("):
        generate(tmp_path, model, requires_grad=["x"])


def test_22_linear_as_a_function(tmp_path, engine):
    # It is not differentiable.
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17, "pkg.torch": 1]>
        graph (float[N, 6] x) => (float[N, 2] y)
        <float[2, 6] w = {1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, -6}, float[2] b = {0, 1}>
        { y = pkg.torch.Linear (x, w, b) }
        <domain: "pkg.torch", opset_import: ["": 17]>
        Linear (x, w, b) => (y) { t = Transpose (w)  m = MatMul (x, t)  y = Add (m, b) }
    """)
    check_gradients(model, {"x": normal(4, 6)})
    generate(tmp_path, model)
    Run(tmp_path, engine).train(normal(4, 6), np.zeros((4, 2), np.float32))


def test_23_artifact_directory(tmp_path, engine):
    # FileNotFoundError; errno 21.
    model = forward(lambda x: x @ weight("w", 6, 2), ("batch", 6))
    folder = tmp_path / "new" / "folder"
    generate(folder, model)
    (folder / "checkpoint").unlink()
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint" / "old").touch()
    generate(folder, model)
    Run(folder, engine).train(normal(4, 6), np.zeros((4, 2), np.float32))


def test_24_tied_weights(tmp_path, engine):
    def build(x):
        table = weight("table", 10, 4)
        return op.Gather(table, x) @ op.Transpose(table, perm=[1, 0])

    model = forward(build, ("batch",), dtype=np.int64)
    generate(tmp_path, model, loss=LossType.CrossEntropyLoss)
    assert list(codec.load(tmp_path / "checkpoint").trainable) == ["table"]
    run, x, labels = Run(tmp_path, engine), np.array([1, 3, 3]), np.array([0, 9, 2])
    table = run.values()["table"].astype(np.float64)
    p = np.exp(table[x] @ table.T)
    d = (p / p.sum(1, keepdims=True) - np.eye(10)[labels]) / 3
    expected = d.T @ table[x]  # as the projection
    np.add.at(expected, x, d @ table)  # and as the embedding
    np.testing.assert_allclose(run.gradients(x, labels)["table"], expected, rtol=1e-4, atol=1e-6)


def test_25_export_of_an_unknown_output(tmp_path, engine):
    # A C++ error.
    generate(tmp_path, forward(lambda x: x @ weight("w", 6, 2), ("batch", 6)))
    with pytest.raises(BlockError, match=r"'?logits'? .*'?MatMul'?"):
        Run(tmp_path, engine).module.export_model_for_inferencing(tmp_path / "m.onnx", ["logits"])


def test_26_import_without_torch(tmp_path):
    # ModuleNotFoundError.
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import blockdsl\n"
        "from blockdsl import api, artifacts, blocks, gradient, loss, optim, testing\n"
        "from blockdsl import cli, trainer\n"
    )
    root = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)


@pytest.mark.parametrize("sees_nothing", [False, True])
@pytest.mark.parametrize("opset", [17, 18])
def test_27_attention_masks_of_minus_infinity(tmp_path, opset, sees_nothing, engine):
    # NaN.
    def build(x, mask):
        q, k, v = (x @ weight(name, 6, 6) for name in ("q", "k", "v"))
        scores = q @ op.Transpose(k, perm=[0, 2, 1]) + op.Where(mask, np.float32(0), -np.inf)
        p = scores.softmax()
        # A row that sees nothing is 0 / 0. PyTorch exports its attention like this: such rows are
        # zeros, and so is their gradient.
        return op.Where(op.IsNaN(p), 0.0, p) @ v

    model = forward(build, ("batch", 3, 6), ("batch", 3, 3), dtype=[np.float32, bool], opset=opset)
    generate(tmp_path, model)
    mask = np.tril(np.ones((2, 3, 3), bool))
    mask[1, 0] = not sees_nothing
    run, batch = Run(tmp_path, engine), (normal(2, 3, 6), mask, np.zeros((2, 3, 6), np.float32))
    for gradient in run.gradients(*batch).values():
        assert np.isfinite(gradient).all()
    run.train(*batch)


def test_28_a_smaller_last_batch(tmp_path, engine):
    # C++: invalid rank or dimension.
    generate(tmp_path, forward(lambda x: x @ weight("w", 6, 2), (4, 6)))
    run = Run(tmp_path, engine)
    with pytest.raises(BlockError, match="'x'") as caught:
        run.module(normal(3, 6), np.zeros((3, 2), np.float32))
    assert "float32[4, 6] but was given float32[3, 6]" in str(caught.value)
    assert "dim_param = 'batch'" in str(caught.value)


def test_optimizers_of_every_kind_train(tmp_path, engine):
    for i, optimizer in enumerate([optim.AdamW(mode="torch"), optim.SGD(momentum=0.5)]):
        generate(
            tmp_path / str(i),
            forward(lambda x: blocks.Linear(6, 2)(x), ("batch", 6)),
            optimizer=optimizer,
        )
        Run(tmp_path / str(i), engine).train(normal(4, 6), np.zeros((4, 2), np.float32))
