"""A label that is no class is refused, by name, position and number of classes.

The runtime's operators count a negative label from the end, silently, or read memory that is not
theirs: the training build returned other losses in evaluation, or ended the process.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import blockdsl
from blockdsl.api import CheckpointState, Module
from blockdsl.backend import run_model
from blockdsl.errors import EngineError, FeedError
from blockdsl.loss import CrossEntropyLoss, NLLLoss
from tests.runs import Run, forward, generate, weight

WEIGHTS = np.float32([1, 2, 3])
LOSSES = {
    "mean": CrossEntropyLoss(),
    "weights": CrossEntropyLoss(weight=WEIGHTS),
    "sum": CrossEntropyLoss(reduction="sum"),
    "ignored": CrossEntropyLoss(ignore_index=-7),
    "ignored class": CrossEntropyLoss(ignore_index=1),
    "smoothing": CrossEntropyLoss(label_smoothing=0.1),
    "smoothing, weights, ignored": CrossEntropyLoss(
        label_smoothing=0.1, weight=WEIGHTS, ignore_index=-7
    ),
    "likelihood": NLLLoss(weight=WEIGHTS),
}
WRONG = {"below": -1, "beyond": 3, "far below": -100, "far beyond": 2**30}
UPSTREAM = Path(__file__).parents[1] / "data" / "upstream" / "mlp"


def classifier(x):
    return (x @ weight("w", 4, 3)).log_softmax()


def batch(*labels, dtype=np.int64, shape=(-1,)):
    labels = np.array(labels, dtype).reshape(shape)
    return np.ones((*labels.shape, 4), np.float32), labels


def losses_of(run, *feeds):
    return [float(run.module.train(mode)(*feeds)) for mode in (True, False)]


def assert_refused(run, feeds, *texts):
    for mode in (True, False):
        with pytest.raises(FeedError) as error:
            run.module.train(mode)(*feeds)
        for text in ("'labels'", "3 classes, 0 to 2", "ignore_index=", *texts):
            assert text in str(error.value)


@pytest.mark.parametrize("opset", [12, 13, 17])
@pytest.mark.parametrize("name", LOSSES)
def test_wrong_labels_are_named(tmp_path, engine, name, opset):
    model = forward(classifier, ("N", 4), opset=opset)
    run = Run(generate(tmp_path, model, loss=LOSSES[name]), engine)
    right = losses_of(run, *batch(2, 1, 0))
    for label in WRONG.values():
        assert_refused(run, batch(2, 1, label), f"the label {label} at position [2]")
        assert_refused(run, batch(label, label, 0), f"the label {label} at position [0]")
    assert losses_of(run, *batch(2, 1, 0)) == right
    ignored = LOSSES[name].ignore_index
    if ignored is not None:
        assert np.isfinite(losses_of(run, *batch(2, ignored, 0))).all()


@pytest.mark.parametrize("name", ["mean", "weights", "ignored", "likelihood"])
@pytest.mark.parametrize("opset", [7, 9, 11])
def test_before_opset_12_the_model_refuses_wrong_labels(tmp_path, engine, name, opset):
    """No operator is the loss there, so that nothing tells an input from an index."""
    model = forward(classifier, (3, 4), opset=opset)
    run = Run(generate(tmp_path, model, loss=LOSSES[name]), engine)
    losses_of(run, *batch(2, 1, 0))
    for label in WRONG.values():
        for mode in (True, False):
            with pytest.raises(EngineError, match="bounds"):
                run.module.train(mode)(*batch(2, 1, label))


@pytest.mark.parametrize("kind", ["int32", "OrtValue", "last axis", "list"])
def test_labels_of_every_form_are_checked(tmp_path, engine, kind):
    loss, shape, feeds, place = LOSSES["mean"], ("N", 4), batch(0, 5), "[1]"
    if kind == "last axis":
        loss, shape = CrossEntropyLoss(axis=-1), ("N", "T", 4)
        feeds, place = batch(0, 1, 2, 2, 5, 1, shape=(3, 2)), "[2, 0]"
    elif kind == "list":
        feeds = feeds[0], feeds[1].tolist()
    elif kind == "OrtValue":
        feeds = [onnxruntime.OrtValue.ortvalue_from_numpy(feed) for feed in feeds]
    elif kind == "int32":
        feeds = batch(0, 5, dtype=np.int32)

    def net(x, *labels):
        return classifier(x)

    if kind == "int32":
        with blockdsl.empty_base(opset_version=17):
            block = IntegerLabels()
            block(blockdsl.input("x", shape=shape), blockdsl.input("labels", np.int32, ("N",)))
            model = block.to_model_proto()
        generate(tmp_path, model, loss=FirstOutput())
    else:
        generate(tmp_path, forward(net, shape), loss=loss)
    assert_refused(Run(tmp_path, engine), feeds, f"the label 5 at position {place}")


class IntegerLabels(blockdsl.ForwardBlock):
    """A model with a loss of its own, of labels of 32 bits."""

    def build(self, x, labels):
        return blockdsl.op.NegativeLogLikelihoodLoss(classifier(x), labels)


class FirstOutput(blockdsl.Block):
    """The model's output as the loss."""

    def build(self, loss):
        return loss


COMPUTED = {
    "shifted": "one = Constant<value_int = 1>() t = Sub(labels, one)",
    "reversed": "three = Constant<value_int = 2>() t = Sub(three, labels)",
    "from floats": "f = Cast<to = 1>(labels) h = Sub(f, w) t = Cast<to = 7>(h)",
}
SHIFTED = {"shifted": ([1, 2, 3], 0), "reversed": ([0, 1, 2], 3), "from floats": ([1, 2, 3], 0)}


@pytest.mark.parametrize("ignored", [None, -5])
@pytest.mark.parametrize("classes", ["3", "C"])
@pytest.mark.parametrize("name", COMPUTED)
def test_labels_that_the_model_computes_do_not_count_from_the_end(
    tmp_path, engine, name, classes, ignored
):
    attribute = "" if ignored is None else f"<ignore_index = {ignored}>"
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        f"g (float[N, {classes}] x, int64[N] labels) => (float loss)"
        " <float[1] w = {1}> { s = Mul(x, w)"
        f" {COMPUTED[name]} loss = SoftmaxCrossEntropyLoss{attribute}(s, t) }}"
    )
    run = Run(generate(tmp_path, model, loss=FirstOutput()), engine)
    right, wrong = SHIFTED[name]
    x = np.eye(3, dtype=np.float32)
    assert np.isfinite(losses_of(run, x, np.array(right))).all()
    for mode in (True, False):
        with pytest.raises(EngineError, match="out of data bounds"):
            run.module.train(mode)(x, np.array([right[0], wrong, right[1]]))


def test_labels_of_artifacts_of_onnxruntime_training_are_checked(tmp_path, engine):
    shutil.copytree(UPSTREAM, tmp_path, dirs_exist_ok=True)
    training = next(tmp_path.glob("*training_model.onnx"))
    prefix = training.name.removesuffix("training_model.onnx")
    state = CheckpointState.load_checkpoint(tmp_path / f"{prefix}checkpoint", engine=engine)
    module = Module(training, state, tmp_path / f"{prefix}eval_model.onnx")
    inputs = onnxruntime.InferenceSession(
        tmp_path / f"{prefix}eval_model.onnx", providers=["CPUExecutionProvider"]
    ).get_inputs()
    width = next(i.shape[1] for i in inputs if i.name == module.input_names()[0])
    x = np.ones((2, width), np.float32)
    for mode in (True, False):
        outputs = module.train(mode)(x, np.array([0, 2]))
        assert np.isfinite(outputs[0] if isinstance(outputs, tuple) else outputs)
        with pytest.raises(FeedError, match=r"the label -1 at position \[1\]"):
            module.train(mode)(x, np.array([0, -1]))


def test_labels_of_any_model_are_checked():
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float[N, 3] x, int64[N] t, int64[N, 1] u) => (float a, float b) {"
        " a = NegativeLogLikelihoodLoss<ignore_index = -100>(x, t)"
        " axes = Constant<value_ints=[1]>() v = Squeeze(u, axes)"
        " b = NegativeLogLikelihoodLoss(x, v) }"
    )
    x, right = np.ones((2, 3), np.float32), np.array([0, 2])
    assert run_model(model, [x, np.array([0, -100]), right[:, None]]).a == -1
    with pytest.raises(FeedError, match=r"'t' .* label -1 .* 0 to 2, and ignores -100"):
        run_model(model, [x, np.array([0, -1]), right[:, None]])
    with pytest.raises(FeedError, match=r"'u' .* label 3 at position \[1, 0\]"):
        run_model(model, [x, right, np.array([[0], [3]])])
