"""Losses: equal to PyTorch's in value and gradient, in every float type, at every opset, stable."""

import json
from pathlib import Path

import numpy as np
import pytest

import blockdsl
from blockdsl import loss as losses
from blockdsl.errors import BlockError, GraphError, LossError
from blockdsl.gradient import build_gradients
from blockdsl.graph import current
from blockdsl.graph.tensor import elem_type_of
from blockdsl.testing import assert_close, evaluate
from tests.engines import run

PYTORCH = json.loads(Path(__file__).with_name("data").joinpath("losses.json").read_text("utf-8"))
"""What PyTorch says: written by data/make_losses.py."""

FORMULAS = [row for row in PYTORCH if row["arguments"]["reduction"] == "none"]
NEWEST_OPSET = 21


def name_of(row):
    settings = [f"{k}={v}" for k, v in row["arguments"].items()]
    shape = "x".join(map(str, np.shape(row["prediction"])))
    return "-".join([row["loss"], shape, *settings]).replace(" ", "")


def built(row, dtype, opset=17, symbolic=False):
    """A model of a row's loss whose outputs are the loss and the gradient of its sum."""
    prediction, target = feeds_of(row, dtype).values()
    loss = getattr(losses, row["loss"])(**row["arguments"])
    axis = row["arguments"].get("axis", 1) % prediction.ndim
    shape = [f"d{i}" if symbolic and i != axis else n for i, n in enumerate(prediction.shape)]
    with blockdsl.empty_base(opset) as handle:
        x = blockdsl.input("prediction", dtype, shape)
        value = loss(x, "given")
        assert value.dtype == np.dtype(dtype)
        assert current().type_of("given").elem_type == elem_type_of(target.dtype)
        gradients = build_gradients(current(), value.sum(), [x])
        current().set_outputs([value, gradients[x]])
        current().check()
    return handle.model


def feeds_of(row, dtype):
    target = np.asarray(row["target"])
    if target.dtype.kind == "f":
        target = target.astype(dtype)
    return {"prediction": np.asarray(row["prediction"], dtype), "given": target}


def check(row, outputs, dtype, **tolerance):
    for what, got in zip(("value", "gradient"), outputs, strict=True):
        assert_close(
            got, row[what], dtype=dtype, gradient=what == "gradient", what=what, **tolerance
        )


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("row", PYTORCH, ids=name_of)
def test_equals_pytorch(row, symbolic):
    model = built(row, np.float64, symbolic=symbolic)
    check(row, evaluate(model)(feeds_of(row, np.float64)), np.float64)


@pytest.mark.parametrize("opset", [7, 9, 11, 12, 13, NEWEST_OPSET])
@pytest.mark.parametrize("row", FORMULAS, ids=name_of)
def test_equals_pytorch_at_every_opset(row, opset):
    model = built(row, np.float64, opset)
    check(row, evaluate(model)(feeds_of(row, np.float64)), np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("row", PYTORCH, ids=name_of)
def test_runs_in_every_float_type(row, dtype):
    check(row, run(built(row, dtype), feeds_of(row, dtype)), dtype)


# -- numbers that break formulas -----------------------------------------------------------------


def value_and_gradient(loss, prediction, target, opset=17):
    """On ONNX Runtime, in float32."""
    x = np.asarray(prediction, np.float32)
    t = np.asarray(target)
    t = t.astype(np.float32) if t.dtype.kind == "f" else t
    with blockdsl.empty_base(opset) as handle:
        made = loss(blockdsl.input("x", shape=x.shape), "t")
        gradients = build_gradients(current(), made.sum(), ["x"])
        current().set_outputs([made, gradients["x"]])
    return run(handle.model, {"x": x, "t": t})


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("logit", "target", "value", "slope"),
    [
        (20, 0, 20, 1),
        (100, 1, 0, 0),
        (-200, 1, 200, -1),
        (200, 0, 200, 1),
        (-200, 0, 0, 0),
        (0, 0, np.log(2), 0.5),
        (0, 1, np.log(2), -0.5),
    ],
)
def test_binary_cross_entropy_of_extreme_logits(logit, target, value, slope, weighted):
    loss = losses.BCEWithLogitsLoss(pos_weight=[3.0] if weighted else None)
    factor = 3 if weighted and target else 1
    found, gradient = value_and_gradient(loss, [logit], [float(target)])
    assert found == pytest.approx(factor * value, abs=1e-6)
    assert gradient == pytest.approx([factor * slope], abs=1e-6)


@pytest.mark.parametrize("opset", [9, 17])
@pytest.mark.parametrize("smoothing", [0, 0.1])
def test_cross_entropy_of_extreme_logits(smoothing, opset):
    loss = losses.CrossEntropyLoss(label_smoothing=smoothing)
    found, gradient = value_and_gradient(loss, [[200, -200, 0], [200, -200, 0]], [0, 1], opset)
    right, wrong = 0.9 * 0 + 0.1 * 600 / 3, 0.9 * 400 + 0.1 * 600 / 3
    assert found == pytest.approx((right + wrong) / 2 if smoothing else 200)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("opset", [9, 17])
def test_cross_entropy_with_a_class_that_is_ruled_out(opset):
    """A score of -inf is a class that cannot be; its label is ignored here, in range or not."""
    scores = np.array([[0, 0, -np.inf], [0, 0, -np.inf]])
    for ignored in (2, -100):
        loss = losses.CrossEntropyLoss(ignore_index=ignored)
        found, gradient = value_and_gradient(loss, scores, [1, ignored], opset)
        assert found == pytest.approx(np.log(2))
        np.testing.assert_allclose(gradient, [[0.5, -0.5, 0], [0, 0, 0]])


@pytest.mark.parametrize("opset", [9, 17])
def test_nothing_but_ignored_labels_have_no_mean(opset):
    """As PyTorch; the training build's own kernel says 0."""
    loss = losses.CrossEntropyLoss(ignore_index=-1)
    found = value_and_gradient(loss, np.zeros((2, 3)), [-1, -1], opset)[0]
    assert np.isnan(found) or found == 0


@pytest.mark.parametrize("opset", [9, 17])
def test_a_label_that_is_no_class_is_an_error(opset):
    with pytest.raises(Exception, match=r"(?i)out of|bounds|index"):
        value_and_gradient(losses.CrossEntropyLoss(), np.zeros((2, 3)), [0, 3], opset)


def test_means_of_half_floats_do_not_overflow():
    row = {
        "loss": "CrossEntropyLoss",
        "arguments": {"ignore_index": 0, "label_smoothing": 0.5},
        "prediction": np.zeros((70_000, 2)),
        "target": np.ones(70_000, np.int64),
    }
    value, _ = run(built(row, np.float16), feeds_of(row, np.float16))
    assert value == pytest.approx(np.log(2), rel=2e-3)


def test_kl_divergence_of_zero_probabilities():
    found, gradient = value_and_gradient(losses.KLDivLoss("sum"), [[-1.0, -2.0]], [[0.0, 1.0]])
    assert found == 2
    np.testing.assert_array_equal(gradient, [[0, -1]])


# -- inputs that a loss adds ---------------------------------------------------------------------


def test_targets_are_added():
    with blockdsl.empty_base():
        x = blockdsl.input("x", "float64", ("N", 3))
        losses.MSELoss()(x)
        assert str(current().type_of("target")) == "float64[N, 3]"
        losses.L1Loss()(x, target_name="other")
        assert str(current().type_of("other")) == "float64[N, 3]"


@pytest.mark.parametrize(
    ("shape", "axis", "wanted"),
    [
        (("N", 5), None, "int64[N]"),
        (("N", 5, 6, 6), None, "int64[N, 6, 6]"),
        (("N", "T", 5), -1, "int64[N, T]"),
        (("N", 5, "T"), None, "int64[N, T]"),
        ((5, "N"), 0, "int64[N]"),
    ],
)
def test_labels_have_the_shape_without_classes(shape, axis, wanted):
    with blockdsl.empty_base():
        losses.CrossEntropyLoss(axis=axis)(blockdsl.input("x", shape=shape))
        assert str(current().type_of("labels")) == wanted


def test_targets_that_exist_are_used():
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", shape=("N", 3))
        labels = blockdsl.input("labels", "int32", ("batch",))
        target = blockdsl.input("target", shape=("batch", None))
        losses.CrossEntropyLoss()(x)
        losses.MSELoss()(x)
        losses.BCEWithLogitsLoss()(x, blockdsl.blocks.Constant(1.0)())
        losses.MSELoss()(x, x.mean(0))
        assert [i.name for i in handle.model.graph.input] == ["x", labels, target]


@pytest.mark.parametrize("opset", [9, 17])
def test_labels_may_be_int32(opset):
    with blockdsl.empty_base(opset) as handle:
        x = blockdsl.input("x", shape=(2, 3))
        blockdsl.input("labels", "int32", (2,))
        current().set_outputs([losses.CrossEntropyLoss(ignore_index=-1)(x)])
        current().check()
    feeds = {"x": np.zeros((2, 3), np.float32), "labels": np.array([0, -1], np.int32)}
    assert run(handle.model, feeds)[0] == pytest.approx(np.log(3))


def test_one_operator_where_there_is_one():
    """Which keeps its second output: gradients need it, and the training build has kernels."""
    with blockdsl.empty_base(12) as handle:
        losses.CrossEntropyLoss()(blockdsl.input("x", shape=("N", 3)))
    (node,) = handle.model.graph.node
    assert node.op_type == "SoftmaxCrossEntropyLoss"
    assert len(node.output) == 2


# -- users' losses -------------------------------------------------------------------------------


def test_a_loss_is_its_formula():
    class Quartic(losses.Loss):
        def elementwise(self, prediction, target):
            return (prediction - target).square().square()

    found, gradient = value_and_gradient(Quartic(), [3.0, 1.0], [1.0, 1.0])
    assert found == 8
    np.testing.assert_allclose(gradient, [16, 0])


def test_subclasses_may_have_attributes_of_their_own():
    class Scaled(losses.MSELoss):
        def __init__(self, factor):
            self.factor = factor

        def elementwise(self, prediction, target):
            return self.factor * super().elementwise(prediction, target)

    assert value_and_gradient(Scaled(3), [2.0], [0.0])[0] == 12


def test_onnxblock_style():
    class Weighted(blockdsl.Block):
        def __init__(self):
            self._loss1, self._loss2 = losses.MSELoss(), losses.MSELoss()
            self._w1, self._w2 = blockdsl.blocks.Constant(0.4), blockdsl.blocks.Constant(0.6)
            self._add, self._mul = blockdsl.blocks.Add(), blockdsl.blocks.Mul()

        def build(self, first, second):
            return self._add(
                self._mul(self._w1(), self._loss1(first, target_name="target1")),
                self._mul(self._w2(), self._loss2(second, target_name="target2")),
            )

    for dtype in ("float16", "float32", "float64"):
        with blockdsl.empty_base():
            loss = Weighted()(
                blockdsl.input("a", dtype, ("N", 2)), blockdsl.input("b", dtype, ("N", 3))
            )
            assert str(loss.type) == f"{dtype}[]"


def test_shows_its_configuration():
    assert repr(losses.MSELoss("sum")) == "MSELoss(reduction='sum')"
    assert repr(losses.CrossEntropyLoss([1, 2], label_smoothing=0.1)) == (
        "CrossEntropyLoss(weight=[1, 2], reduction='mean', ignore_index=None, axis=None, "
        "label_smoothing=0.1)"
    )


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in losses.__all__ if n != "Loss"])
def test_refuses_a_reduction(name):
    message = rf"Reduction avg not supported. {name} has 'mean', 'sum', 'none'"
    with pytest.raises(RuntimeError, match=message) as caught:
        getattr(losses, name)(reduction="avg")
    assert isinstance(caught.value, BlockError)


def test_refuses_a_reduction_set_by_a_subclass():
    class Mine(losses.Loss):
        reduction = "avg"

        def elementwise(self, prediction, target):
            return prediction - target

    with blockdsl.empty_base(), pytest.raises(LossError, match="Reduction avg not supported"):
        Mine()(blockdsl.input("x", shape=(2,)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: losses.CrossEntropyLoss(label_smoothing=2), "label_smoothing=2 is not between 0"),
        (
            lambda: losses.CrossEntropyLoss(label_smoothing="a"),
            "label_smoothing is 'a', of type str",
        ),
        (lambda: losses.CrossEntropyLoss(reduction=3), "Reduction 3 not supported.*has 'mean', 's"),
        (lambda: losses.CrossEntropyLoss(ignore_index="a"), "ignore_index is 'a'.* a whole number"),
        (
            lambda: losses.NLLLoss(axis=1.5),
            "NLLLoss: axis is 1.5, of type float: it is a whole num",
        ),
        (lambda: losses.NLLLoss(weight="a"), "NLLLoss: weight is 'a': it is an array of numbers"),
        (
            lambda: losses.BCEWithLogitsLoss(pos_weight=[[1], [1, 2]]),
            r"pos_weight is \[\[1\], \[1, 2",
        ),
        (
            lambda: losses.HuberLoss(delta="1"),
            "HuberLoss: delta is '1', of type str: it is a number",
        ),
        (lambda: losses.SmoothL1Loss(beta=None), "SmoothL1Loss: beta is None, of type NoneType"),
        (lambda: losses.SmoothL1Loss(beta=float("nan")), "beta=nan is not positive"),
        (lambda: losses.HuberLoss(delta=0), "HuberLoss: delta=0 is not positive"),
        (lambda: losses.SmoothL1Loss(beta=0), "beta=0 is not positive. The limit at 0 is L1Loss"),
    ],
)
def test_refuses_settings(make, message):
    with pytest.raises(LossError, match=message):
        make()


@pytest.mark.parametrize(
    ("loss", "dtype", "shape", "message"),
    [
        (
            losses.MSELoss(),
            "int64",
            ("N",),
            r"MSELoss needs a floating-point prediction, and x has",
        ),
        (losses.CrossEntropyLoss(), "int64", ("N", 3), "needs a floating-point prediction"),
        (losses.CrossEntropyLoss(), "float32", ("N",), "needs scores with an axis of classes"),
        (losses.CrossEntropyLoss([1, 2]), "float32", ("N", 3), "one weight for each class.*axis 1"),
        (losses.NLLLoss([[1, 2, 3]]), "float32", ("N", 3), r"array of the shape \(1, 3\)"),
        (
            losses.CrossEntropyLoss(label_smoothing=0.1),
            "float32",
            ("N", "C"),
            "needs to know how many classes.*Give axis 1 a size",
        ),
        (
            losses.BCEWithLogitsLoss([1, 2]),
            "float32",
            ("N", 3),
            r"weight has the shape \(2,\), which does not broadcast to x",
        ),
        (
            losses.BCEWithLogitsLoss(pos_weight=[[[1]]]),
            "float32",
            ("N", 3),
            r"pos_weight has the shape \(1, 1, 1\)",
        ),
    ],
)
def test_refuses_predictions(loss, dtype, shape, message):
    with blockdsl.empty_base():
        x = blockdsl.input("x", dtype, shape)
        with pytest.raises(LossError, match=message):
            loss(x)


@pytest.mark.parametrize(
    ("loss", "name", "dtype", "shape", "message"),
    [
        (
            losses.MSELoss(),
            "target",
            "float32",
            ("N", 2),
            r"input target of the type float32\[N, 2\] already, and MSELoss needs the type "
            r"float32\[N, 3\]. If that is another target, name this one: target_name='target2'.",
        ),
        (losses.MSELoss(), "target", "float32", ("N", 1), r"float32\[N, 1\] already"),
        (losses.MSELoss(), "target", "float64", ("N", 3), r"float64\[N, 3\] already"),
        (losses.CrossEntropyLoss(), "labels", "int64", ("N", 1), r"needs the type int64\[N\]"),
        (losses.CrossEntropyLoss(), "labels", "float32", ("N",), r"labels_name='labels2'"),
    ],
)
def test_refuses_targets(loss, name, dtype, shape, message):
    with blockdsl.empty_base():
        x = blockdsl.input("x", shape=("N", 3))
        blockdsl.input(name, dtype, shape)
        with pytest.raises(GraphError, match=message):
            loss(x)


def test_refuses_labels_along_another_axis():
    with blockdsl.empty_base():
        blockdsl.input("labels", "int64", ("N", 7))
        with pytest.raises(GraphError, match=r"the last axis of the scores, say axis=-1"):
            losses.CrossEntropyLoss()(blockdsl.input("x", shape=("N", 7, 3)))


def test_refuses_targets_that_are_computed_larger():
    with blockdsl.empty_base():
        x = blockdsl.input("x", shape=(4, 1))
        with pytest.raises(GraphError, match=r"a tensor Abs of the type float32\[4, 4\] already"):
            losses.MSELoss()(x, blockdsl.input("y", shape=(4, 4)).abs())


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("label", [3, 7, -4])
@pytest.mark.parametrize(
    "loss",
    [losses.CrossEntropyLoss(), losses.CrossEntropyLoss(ignore_index=-100), losses.NLLLoss()],
    ids=str,
)
def test_a_label_that_is_no_class_stops_the_step(loss, label, opset):
    with blockdsl.empty_base(opset) as handle:
        x = blockdsl.input("x", shape=("N", 3))
        value = loss(x)
        gradients = build_gradients(current(), value, [x])
        current().set_outputs([value, gradients[x]])
    feeds = {"x": np.zeros((2, 3), np.float32), "labels": np.array([0, label])}
    with pytest.raises(Exception, match=r"Gather|Scatter"):
        run(handle.model, feeds)


@pytest.mark.parametrize(
    "loss",
    [
        losses.MSELoss(),
        losses.L1Loss(),
        losses.HuberLoss(),
        losses.SmoothL1Loss(),
        losses.BCEWithLogitsLoss(),
        losses.KLDivLoss("batchmean"),
        losses.NLLLoss(),
        losses.CrossEntropyLoss(label_smoothing=0.1),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_a_batch_without_rows_has_the_gradient_zero(loss):
    with blockdsl.empty_base() as handle:
        x, w = blockdsl.input("x", shape=("N", 3)), blockdsl.input("w", shape=(3,))
        value = loss(x * w)
        gradients = build_gradients(current(), value, [x, w])
        current().set_outputs([value, *gradients.values()])
    labels = {"labels": np.zeros(0, np.int64), "target": np.zeros((0, 3), np.float32)}
    _, by_x, by_w = run(
        handle.model, {"x": np.zeros((0, 3), np.float32), "w": np.ones(3, np.float32), **labels}
    )
    assert by_x.shape == (0, 3)
    np.testing.assert_array_equal(by_w, np.zeros(3))
