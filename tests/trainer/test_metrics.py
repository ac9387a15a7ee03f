"""Metrics are those of the whole data set, whatever its batches are.

They used to be means of the batches' metrics: wrong for whatever is no mean over rows.
"""

import numpy as np
import pytest
from onnxruntime import OrtValue

import blockdsl
from blockdsl.artifacts import LossType, OptimType, generate_artifacts
from blockdsl.errors import DataError, UnknownNameError
from blockdsl.trainer import Trainer
from tests import small
from tests.runs import forward, weight

ROWS = 50


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small.generate(tmp_path_factory.mktemp("metrics"))


def r2(y, t):
    return 1 - ((y - t) ** 2).sum() / ((t - t.mean()) ** 2).sum()


def f1(y, t):
    y, t = y > 0, t > 0
    return 2 * (y & t).sum() / (y.sum() + t.sum())


METRICS = {
    "mean absolute error": lambda y, t: np.abs(y - t).mean(),
    "root mean squared error": lambda y, t: np.sqrt(((y - t) ** 2).mean()),
    "r2": r2,
    "f1": f1,
    "correlation": lambda y, t: np.corrcoef(y.ravel(), t.ravel())[0, 1],
    "largest error": lambda y, t: np.abs(y - t).max(),
    "median": lambda y, t: np.median(y - t),
    "rows": lambda y, t: len(y),
    "accuracy": lambda y, t: (y.argmax(1) == t.argmax(1)).mean(),
}


class Accumulated:
    """Any metric of the table, on arrays that are collected."""

    def __init__(self, metric):
        self.metric = metric

    def reset(self):
        self.parts = []

    def update(self, outputs, inputs):
        self.parts.append((outputs[small.Y], inputs["target"]))

    def compute(self):
        return self.metric(*map(np.concatenate, zip(*self.parts, strict=True)))


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("size", [7, 16, ROWS])
def test_metrics_do_not_depend_on_the_batches(folder, name, size, engine):
    metric, (x, target) = METRICS[name], small.data(rows=ROWS)
    trainer = Trainer(folder, engine=engine)
    y = trainer.module.eval()(x, target)[1]
    expected = metric(y, target)
    asked = {
        "function": lambda outputs, inputs: metric(outputs[small.Y], inputs["target"]),
        "object": Accumulated(metric),
    }
    data = blockdsl.Batches(x, target, size=size, shuffle=False)
    for _ in range(2):  # objects are reset
        found = trainer.evaluate(data, asked)
        assert list(found) == ["loss", "function", "object"]
        assert found["function"] == pytest.approx(expected, rel=1e-5)
        assert found["object"] == found["function"]
        assert found["loss"] == pytest.approx(((y - target) ** 2).mean(), rel=1e-5)


@pytest.mark.parametrize("form", [np.asarray, np.ndarray.tolist, OrtValue.ortvalue_from_numpy])
def test_inputs_may_be_what_modules_take(folder, form, engine):
    x, target = small.data(rows=8)
    metrics = {"mean": lambda outputs, inputs: inputs["x"].mean()}
    trainer = Trainer(folder, engine=engine)
    found = trainer.evaluate([(form(x), form(target))], metrics)
    assert found["mean"] == pytest.approx(x.mean(), rel=1e-5)


def test_metrics_while_training(folder, engine):
    x, target = small.data(rows=ROWS)
    data = blockdsl.Batches(x, target, size=16, shuffle=False)
    trainer = Trainer(folder, engine=engine)
    metrics = {
        "r2": lambda outputs, inputs: r2(outputs[small.Y], inputs["target"]),
        "same": Accumulated(r2),
    }
    history = trainer.fit(data, epochs=3, validation=data, metrics=metrics, progress=False)
    y = trainer.module.eval()(x, target)[1]
    for _, measures in history.evaluations:
        assert measures["r2"] == measures["same"]
    assert history.evaluations[-1][1]["r2"] == pytest.approx(r2(y, target), rel=1e-5)


def test_perplexity_of_the_loss(tmp_path, engine):
    """Scalar outputs are means over the rows: their exponential is of the whole data."""
    model = forward(lambda x: x @ weight("w", 4, 3), ("batch", 4))
    generate_artifacts(
        model,
        loss=LossType.CrossEntropyLoss,
        optimizer=OptimType.AdamW,
        artifact_directory=tmp_path,
    )
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(ROWS, 4)).astype(np.float32) * 3, rng.integers(0, 3, ROWS)
    trainer = Trainer(tmp_path, engine=engine)
    (loss,) = trainer.module.eval().output_names()
    expected = float(np.exp(trainer.module(x, labels)))

    def perplexity(outputs, inputs):
        assert outputs[loss].shape == ()
        return np.exp(outputs[loss])

    for size in (7, 16, ROWS):
        found = trainer.evaluate(blockdsl.Batches(x, labels, size=size), {"it": perplexity})
        assert found["it"] == pytest.approx(expected, rel=1e-5)


def test_rows_are_those_of_most_inputs(tmp_path, engine):
    """The first input may be one for all rows: batches had the weight 1 then, the last one too."""

    def build(mask, x):
        return (x * mask) @ weight("w", 4, 2)

    generate_artifacts(
        forward(build, (1, 4), ("batch", 4)),
        loss=LossType.MSELoss,
        optimizer=OptimType.AdamW,
        artifact_directory=tmp_path,
    )
    rng = np.random.default_rng(0)
    mask, x = np.ones((1, 4), np.float32), rng.normal(size=(10, 4)).astype(np.float32)
    target = np.arange(20, dtype=np.float32).reshape(10, 2)
    trainer = Trainer(tmp_path, engine=engine)
    whole = trainer.evaluate([(mask, x, target)])
    parts = trainer.evaluate([(mask, x[:8], target[:8]), (mask, x[8:], target[8:])])
    assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-5)


def test_batches_that_cannot_be_joined(tmp_path, engine):
    model = forward(lambda x: x * weight("w", 1), ("batch", "length"))
    generate_artifacts(
        model,
        loss=LossType.MSELoss,
        optimizer=OptimType.AdamW,
        artifact_directory=tmp_path,
    )
    data = [(np.ones((2, n), np.float32),) * 2 for n in (3, 5)]
    trainer = Trainer(tmp_path, engine=engine)
    words = (
        r"A metric reads 'x', whose batches have different shapes beside their rows, \(3,\) and "
        r"\(5,\), so they cannot be joined\. Write the metric as an object with reset, update"
    )
    with pytest.raises(DataError, match=words):
        trainer.evaluate(data, {"mean": lambda outputs, inputs: inputs["x"].mean()})
    assert trainer.module.training
    assert trainer.evaluate(data, {"four": lambda outputs, inputs: 4})["four"] == 4

    class Mean:
        def reset(self):
            self.total = self.count = 0

        def update(self, outputs, inputs):
            self.total += inputs["x"].sum()
            self.count += inputs["x"].size

        def compute(self):
            return self.total / self.count

    assert trainer.evaluate(data, {"mean": Mean()})["mean"] == 1


class Half:
    def update(self, outputs, inputs):
        pass


MISTAKES = {
    "an object that lacks methods": (Half(), "an object with reset, update and compute"),
    "a class": (Accumulated, r"Make an instance: Accumulated\(\)"),
    "a number": (5, "a metric is a function of the outputs and the inputs"),
    "an array": (lambda outputs, inputs: outputs[small.Y], "one number, of the whole data set"),
    "no value": (Accumulated(lambda y, t: None), "one number, of the whole data set"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(folder, mistake):
    metric, words = MISTAKES[mistake]
    data = blockdsl.Batches(*small.data(), size=8)
    with pytest.raises(DataError, match=words):
        Trainer(folder).evaluate(data, {"odd": metric})


def test_unknown_names(folder):
    data = blockdsl.Batches(*small.data(), size=8)
    for read in (lambda o, i: o["z"].mean(), lambda o, i: i["targte"].mean()):
        with pytest.raises(
            UnknownNameError, match=r"A metric reads the (output 'z'|input 'targte')"
        ):
            Trainer(folder).evaluate(data, {"odd": read})
