"""Every call of `Trainer.fit` is a run of its own; a resumed or interrupted run is finished first.

A second call used to train nothing, without a word, since it counted the epochs of the first.
"""

import numpy as np
import pytest
from typer.testing import CliRunner

import blockdsl
from blockdsl.cli import app
from blockdsl.errors import BlockWarning, DataError
from blockdsl.trainer import Trainer
from tests import small

STEPS = 12  # of an epoch


@pytest.fixture
def folder(tmp_path):
    return small.generate(tmp_path / "run")


@pytest.fixture
def data():
    return blockdsl.Batches(*small.data(), size=8)


def fit(trainer, data, **settings):
    return trainer.fit(data, progress=False, **settings).losses


def same(one, other):
    assert one.step == other.step
    for name, value in small.values(one).items():
        assert np.array_equal(small.values(other)[name], value), name


def test_another_call_trains_on(folder, data, engine):
    """Two calls are one of as many epochs: order of batches, moments and all."""
    whole, parts = Trainer(folder, engine=engine), Trainer(folder, engine=engine)
    losses = fit(whole, data, epochs=5)
    assert fit(parts, data, epochs=2) + fit(parts, data, epochs=2) + fit(parts, data) == losses
    same(parts, whole)


@pytest.mark.parametrize("passed", ["data", "a list", "a loader without a length"])
def test_whatever_the_data_are(folder, passed, engine):
    x, target = small.data(rows=24)
    rows = [(x[i : i + 8], target[i : i + 8]) for i in range(0, 24, 8)]

    class Loader:
        def __iter__(self):
            return iter(rows)

    form = {"data": blockdsl.Batches(x, target, size=8), "a list": rows}.get(passed, Loader())
    trainer = Trainer(folder, engine=engine)
    assert [len(fit(trainer, form, epochs=n)) for n in (2, 1, 0, 2)] == [6, 3, 0, 6]


def test_each_run_has_a_schedule_of_its_own(folder, data, engine):
    trainer, rates = Trainer(folder, engine=engine), []
    settings = {
        "learning_rate": 0.1,
        "warmup_steps": 4,
        "decay": True,
        "on_step": lambda *_: rates.append(trainer.optimizer.get_learning_rate()),
    }
    fit(trainer, data, **settings)
    first = list(rates)
    fit(trainer, data, **settings)
    np.testing.assert_array_equal(rates[STEPS:], first)
    expected = [0.1 * t / 4 for t in range(1, 4)] + [0.1 * (12 - t) / 8 for t in range(4, 13)]
    np.testing.assert_allclose(first, expected, rtol=1e-6)


def test_a_run_after_a_decay_needs_a_rate(folder, data, tmp_path, engine):
    """It would have trained with the rate 0."""
    trainer = Trainer(folder, engine=engine)
    fit(trainer, data, learning_rate=0.1, decay=True)
    trainer.save(tmp_path / "done")
    words = r"The learning rate is 0, where the decay of the last run has left it\. Pass learning_"
    for begun in (trainer, Trainer(folder, checkpoint=tmp_path / "done", engine=engine)):
        with pytest.raises(DataError, match=words):
            fit(begun, data)
        assert len(fit(begun, data, learning_rate=0.1)) == STEPS


def test_the_highest_rate_is_that_of_the_run(folder, data, engine):
    """The second run begins with the rate that is set, not with that of the first."""
    trainer, rates = Trainer(folder, engine=engine), []
    fit(trainer, data, warmup_steps=2)
    trainer.optimizer.set_learning_rate(0.5)
    fit(
        trainer,
        data,
        warmup_steps=2,
        on_step=lambda *_: rates.append(trainer.optimizer.get_learning_rate()),
    )
    assert max(rates) == 0.5


SCHEDULES = {
    "no schedule": {},
    "decay": {"learning_rate": 0.05, "warmup_steps": 3, "decay": True},
    "the optimizer's rate": {"warmup_steps": 3},
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("stopped_at", [5, 20, STEPS])
def test_an_interrupted_second_run_is_resumed(folder, data, tmp_path, schedule, stopped_at, engine):
    settings = {"epochs": 2, "checkpoint_every": 4, **SCHEDULES[schedule]}
    elsewhere = {"checkpoint_directory": tmp_path / "whole"}
    whole = Trainer(folder, engine=engine)
    fit(whole, data, **settings, **elsewhere)
    losses = fit(whole, data, **settings, **elsewhere)

    class StoppedError(Exception):
        pass

    trainer = Trainer(folder, engine=engine)
    fit(trainer, data, **settings)

    def stop(step, loss):
        if step == 2 * STEPS + stopped_at:
            raise StoppedError

    with pytest.raises(StoppedError):
        fit(trainer, data, on_step=stop, **settings)
    resumed = Trainer.resume(folder, engine=engine)
    done = (stopped_at - 1) // 4 * 4
    assert fit(resumed, data, **settings) == losses[done:]
    same(resumed, whole)
    assert len(fit(resumed, data, **{**settings, "epochs": 1})) == STEPS  # a run of its own


def test_after_an_exception_the_same_call_finishes_the_run(folder, data, engine):
    whole, trainer = Trainer(folder, engine=engine), Trainer(folder, engine=engine)
    expected = fit(whole, data, epochs=3)
    losses = []

    def interrupt(step, loss):
        losses.append(loss)
        if step == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(trainer, data, epochs=3, on_step=interrupt)
    assert losses + fit(trainer, data, epochs=3) == expected
    same(trainer, whole)
    assert len(fit(trainer, data, epochs=3)) == 3 * STEPS


def test_a_complete_run_is_resumed(folder, data, tmp_path, engine):
    trainer = Trainer(folder, engine=engine)
    fit(trainer, data, epochs=2)
    trainer.save(tmp_path / "done")
    resumed = Trainer.resume(folder, tmp_path / "done", engine=engine)
    words = (
        r"Nothing is left to do: 2 epochs of this run are done, in 24 steps, and the 2 that were "
        r"asked for count those\. To finish the run later ask for more, 4 for as many again; "
        r"another call of Trainer\.fit is another run\."
    )
    with pytest.warns(BlockWarning, match=words):
        assert fit(resumed, data, epochs=2) == []
    assert len(fit(resumed, data, epochs=2)) == 2 * STEPS
    longer = Trainer.resume(folder, tmp_path / "done", engine=engine)
    assert fit(longer, data, epochs=3) == fit(trainer, data, epochs=1)


def test_a_trained_checkpoint_begins_a_run(folder, data, tmp_path, engine):
    """`Trainer(checkpoint=)` trained nothing once the checkpoint had as many epochs."""
    trainer = Trainer(folder, engine=engine)
    fit(trainer, data, epochs=2)
    trainer.save(tmp_path / "done")
    tuned = Trainer(folder, checkpoint=tmp_path / "done", engine=engine)
    assert fit(tuned, data, epochs=2) == fit(trainer, data, epochs=2)
    same(tuned, trainer)


@pytest.mark.filterwarnings("always")
def test_the_command_line(folder, data, tmp_path, monkeypatch, engine):
    monkeypatch.chdir(tmp_path)
    x, target = small.data()
    np.savez("train.npz", x=x, target=target)
    options = ["--data", "train.npz", "--batch-size", "8", "--engine", engine]

    def train(*more):
        done = CliRunner().invoke(app, ["train", "run", *options, *map(str, more)])
        assert done.exit_code == 0, done.output
        return done

    assert "Step 24: loss" in train("--epochs", 2).stdout
    again = train("--epochs", 2, "--resume")
    assert "Nothing is left to do: 2 epochs of this run are done" in again.stderr
    assert "Step 36: loss" in train("--epochs", 3, "--resume").stdout
    assert "Step 24: loss" in train("--epochs", 2).stdout  # from the artifacts' own checkpoint
