"""`Trainer` on both engines: what it does with data, checkpoints and mistakes."""

import os

import numpy as np
import onnxruntime
import pytest

import blockdsl
from blockdsl import blocks, optim
from blockdsl.artifacts import LossType, OptimType, generate_artifacts
from blockdsl.errors import (
    ArtifactError,
    CheckpointError,
    CheckpointNotFoundError,
    DataError,
    EngineError,
    FeedError,
    StateError,
    UnknownNameError,
)
from blockdsl.trainer import Trainer, latest_checkpoint
from tests import small
from tests.engines import available_engines


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small.generate(tmp_path_factory.mktemp("adamw"))


@pytest.fixture
def batches():
    return blockdsl.Batches(*small.data(), size=8)


def quietly(trainer, data, **settings):
    return trainer.fit(data, progress=False, **settings)


# -- training ----------------------------------------------------------------------------------


def test_loss_falls(folder, batches, engine):
    trainer = Trainer(folder, engine=engine)
    before = trainer.evaluate(batches)["loss"]
    history = quietly(trainer, batches, epochs=20, learning_rate=0.02)
    assert trainer.state.engine == engine
    assert len(history.losses) == 20 * 12 == trainer.step
    assert trainer.evaluate(batches)["loss"] < before / 10


def test_both_engines_train_alike(folder, batches):
    losses = [
        quietly(Trainer(folder, engine=e), batches, epochs=3, learning_rate=0.02).losses
        for e in available_engines()
    ]
    for other in losses[1:]:
        np.testing.assert_allclose(other, losses[0], rtol=1e-4)


def test_gradient_accumulation_is_one_large_batch(tmp_path, engine):
    small.generate(tmp_path, optimizer=optim.SGD())
    x, target = small.data()
    few = Trainer(tmp_path, engine=engine)
    quietly(few, blockdsl.Batches(x, target, size=32, shuffle=False), learning_rate=0.4)
    many = Trainer(tmp_path, engine=engine)
    history = quietly(
        many,
        blockdsl.Batches(x, target, size=8, shuffle=False),
        learning_rate=0.1,  # the gradients of four means add up
        gradient_accumulation=4,
    )
    assert many.step == few.step == len(history.losses) == 3
    for name, value in small.values(few).items():
        np.testing.assert_allclose(small.values(many)[name], value, rtol=1e-4, atol=1e-6)


def test_last_batches_of_an_epoch_make_a_step_of_their_own(folder, engine):
    data = blockdsl.Batches(*small.data(rows=80), size=8)
    trainer = Trainer(folder, engine=engine)
    quietly(trainer, data, epochs=2, gradient_accumulation=4)
    assert trainer.step == 2 * 3


def test_learning_rate_warms_up_and_decays(folder, batches, engine):
    trainer, rates = Trainer(folder, engine=engine), []
    quietly(
        trainer,
        batches,
        learning_rate=0.1,
        warmup_steps=4,
        decay=True,
        on_step=lambda step, loss: rates.append(trainer.optimizer.get_learning_rate()),
    )
    expected = [0.1 * t / 4 for t in range(1, 4)] + [0.1 * (12 - t) / 8 for t in range(4, 13)]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


def test_learning_rate_stays_after_a_warmup_without_decay(folder, batches, engine):
    trainer = Trainer(folder, engine=engine)
    quietly(trainer, batches, epochs=2, learning_rate=0.1, warmup_steps=4)
    assert trainer.optimizer.get_learning_rate() == np.float32(0.1)


def test_gradients_that_are_left_over_are_forgotten(folder, batches, engine):
    expected = quietly(Trainer(folder, engine=engine), batches).losses
    trainer = Trainer(folder, engine=engine)
    trainer.module(*small.data(seed=1))
    assert quietly(trainer, batches).losses == expected


@pytest.mark.parametrize("form", ["tuples", "mappings", "loader"])
def test_data_may_be(folder, form, engine):
    x, target = small.data(rows=24)
    pairs = [(x[i : i + 8], target[i : i + 8]) for i in range(0, 24, 8)]

    class Loader:  # it has no length
        def __iter__(self):
            return iter(pairs)

    named = [{"target": t, "x": x, "index": np.arange(8)} for x, t in pairs]
    data = {"tuples": pairs, "mappings": named, "loader": Loader()}[form]
    expected = quietly(Trainer(folder, engine=engine), pairs, epochs=2)
    assert quietly(Trainer(folder, engine=engine), data, epochs=2).losses == expected.losses


# -- evaluation --------------------------------------------------------------------------------


def test_evaluation_weights_batches_by_their_rows(folder, engine):
    x, target = small.data(rows=20)
    trainer = Trainer(folder, engine=engine)

    def error(outputs, inputs):
        return np.abs(outputs[small.Y] - inputs["target"]).mean()

    whole = trainer.evaluate([(x, target)], {"error": error})
    parts = trainer.evaluate(blockdsl.Batches(x, target, size=8), {"error": error})
    assert parts == pytest.approx(whole, rel=1e-5)
    assert set(whole) == {"loss", "error"}
    assert trainer.module.training


@pytest.mark.parametrize(("every", "steps"), [(None, [12, 24]), (5, [5, 10, 15, 20])])
def test_evaluation_while_training(folder, batches, every, steps, engine):
    told = []
    trainer = Trainer(folder, engine=engine)
    history = quietly(
        trainer,
        batches,
        epochs=2,
        validation=batches,
        eval_every=every,
        on_evaluation=lambda step, measures: told.append((step, measures)),
    )
    assert [step for step, _ in history.evaluations] == steps
    assert told == history.evaluations


def test_evaluation_changes_nothing(folder, batches, engine):
    plain = quietly(Trainer(folder, engine=engine), batches)
    watched = quietly(Trainer(folder, engine=engine), batches, validation=batches, eval_every=1)
    assert watched.losses == plain.losses


# -- checkpoints -------------------------------------------------------------------------------


def test_checkpoints_at_intervals_and_at_the_end(folder, batches, tmp_path, engine):
    trainer = Trainer(folder, engine=engine)
    quietly(trainer, batches, checkpoint_every=5, checkpoint_directory=tmp_path / "a" / "b")
    assert sorted(os.listdir(tmp_path / "a" / "b")) == [
        "step-00000005",
        "step-00000010",
        "step-00000012",
    ]
    properties = dict(trainer.state.properties)
    assert properties["framework"] == "onnxruntime"
    assert properties["epoch"] == 1
    assert isinstance(properties["loss"], float)


@pytest.mark.parametrize("optimizer", [OptimType.AdamW, optim.SGD(momentum=0.9)], ids=str)
@pytest.mark.parametrize("stopped_at", [12, 16, 18])
def test_resumed_run_is_bit_for_bit_the_whole_run(tmp_path, optimizer, stopped_at, engine):
    small.generate(tmp_path, optimizer=optimizer)
    settings = {
        "epochs": 3,
        "warmup_steps": 3,
        "decay": True,
        "gradient_accumulation": 2,
        "checkpoint_every": 4,
        "learning_rate": 0.05 if stopped_at == 16 else None,
    }
    data = blockdsl.Batches(*small.data(rows=92), size=8)  # the last batch is smaller
    whole = Trainer(tmp_path, engine=engine)
    history = quietly(whole, data, checkpoint_directory=tmp_path / "other", **settings)

    class StoppedError(Exception):
        pass

    def stop(step, loss):
        if step == stopped_at:
            raise StoppedError

    with pytest.raises(StoppedError):
        quietly(Trainer(tmp_path, engine=engine), data, on_step=stop, **settings)
    resumed = Trainer.resume(tmp_path, engine=engine)
    begin = (stopped_at - 1) // 4 * 4
    assert resumed.step == begin
    rest = quietly(resumed, data, **settings)
    assert rest.losses == history.losses[begin:]
    assert resumed.step == whole.step
    for name, value in small.values(whole).items():
        assert np.array_equal(small.values(resumed)[name], value)


def test_running_statistics_are_resumed(tmp_path, batches, engine):
    class Net(blockdsl.ForwardBlock):
        def build(self, x):
            hidden = blocks.BatchNorm(8)(blocks.Linear(4, 8)(x)).relu()
            return blocks.Linear(8, 2)(hidden)

    with blockdsl.empty_base():
        net = Net()
        net(blockdsl.input("x", shape=("batch", 4)))
        model = net.to_model_proto()
    settings = {"loss": LossType.MSELoss, "optimizer": OptimType.AdamW}
    generate_artifacts(model, artifact_directory=tmp_path, **settings)
    whole = Trainer(tmp_path, engine=engine)
    before = small.values(whole)
    quietly(whole, batches, epochs=2, checkpoint_every=7)
    resumed = Trainer.resume(tmp_path, tmp_path / "checkpoints" / "step-00000007", engine=engine)
    quietly(resumed, batches, epochs=2)
    for name, value in small.values(whole).items():
        assert not np.array_equal(before[name], value)
        assert np.array_equal(small.values(resumed)[name], value)


def test_a_checkpoint_goes_where_resume_looks(tmp_path, batches, engine):
    small.generate(tmp_path)
    trainer = Trainer(tmp_path, engine=engine)
    quietly(trainer, batches)
    assert not (tmp_path / "checkpoints").exists()
    trainer.save()
    assert os.listdir(tmp_path / "checkpoints") == ["step-00000012"]
    assert Trainer.resume(tmp_path, engine=engine).step == 12


def test_the_latest_checkpoint_is_the_one_written_last(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    for i, step in enumerate([90, 100, 20]):  # a longer run came before this one
        path = tmp_path / "checkpoints" / f"step-{step:08d}"
        path.touch()
        os.utime(path, (i, i))
    (tmp_path / "checkpoints" / "step-00000020.data").touch()
    (tmp_path / "checkpoints" / "other-step-00000300").touch()
    assert latest_checkpoint(tmp_path).name == "step-00000020"
    assert latest_checkpoint(tmp_path, "other-").name == "other-step-00000300"
    assert latest_checkpoint(tmp_path, "none-") is None


@pytest.mark.parametrize("prefix", ["mine-", "mine[1]*-"])
def test_prefix(tmp_path, batches, engine, prefix):
    small.generate(tmp_path, prefix=prefix)
    trainer = Trainer(tmp_path, prefix=prefix, engine=engine)
    quietly(trainer, batches, checkpoint_every=10)
    resumed = Trainer.resume(tmp_path, prefix=prefix, engine=engine)
    assert resumed.step == 12
    with pytest.raises(ArtifactError, match=r"has no training_model\.onnx"):
        Trainer(tmp_path)


# -- export ------------------------------------------------------------------------------------


def test_export(folder, batches, tmp_path, engine):
    trainer = Trainer(folder, engine=engine)
    quietly(trainer, batches)
    trainer.export(tmp_path / "model.onnx", [small.Y])
    session = onnxruntime.InferenceSession(
        tmp_path / "model.onnx", providers=["CPUExecutionProvider"]
    )
    x, target = small.data()
    (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, trainer.module.eval()(x, target)[1], rtol=1e-5, atol=1e-6)


# -- what a person sees ------------------------------------------------------------------------


def test_progress(folder, batches, capsys, engine):
    Trainer(folder, engine=engine).fit(batches, validation=batches)
    shown = capsys.readouterr().out
    assert "12/12" in shown
    assert "step 12: loss" in shown


def test_a_history_is_shown_in_a_line(folder, batches):
    history = quietly(Trainer(folder), batches, validation=batches)
    assert repr(history).startswith("History(12 steps, the last with loss ")
    assert repr(history).endswith(f"; 1 evaluations, last {history.evaluations[0]})")
    assert repr(blockdsl.trainer.History()) == "History(0 steps; 0 evaluations)"


def test_after_another_loop_the_last_step_is_so_much_later(folder, batches, capsys, engine):
    trainer = Trainer(folder, engine=engine)
    for _ in range(5):
        trainer.module(*small.data())
        trainer.optimizer.step()
        trainer.module.lazy_reset_grad()
    rates = []
    trainer.fit(
        batches,
        epochs=2,
        learning_rate=0.1,
        decay=True,
        on_step=lambda *_: rates.append(trainer.optimizer.get_learning_rate()),
    )
    assert trainer.step == 29
    assert "29/29" in capsys.readouterr().out
    expected = [0.1 * (24 - t) / 24 for t in range(1, 25)]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


def test_no_progress(folder, batches, capsys, engine):
    quietly(Trainer(folder, engine=engine), batches, validation=batches)
    assert capsys.readouterr().out == ""


# -- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (iter([]), "data is an iterator, which can be read only once"),
        ({"x": 1, "target": 2}, r"data is a mapping, which is a single batch.*Batches\(data"),
        (3, "data is of type int, which gives no batches"),
        ([], "There is nothing to train on"),
        ([(small.data()[0],)], "The batch has 1 array, and the model takes 2: x, target"),
        ([{"x": 1, "Target": 2}], "The batch lacks 'target'.*Did you mean 'Target'"),
    ],
)
def test_data_that_does_not_fit(folder, data, message, engine):
    with pytest.raises(DataError, match=message):
        quietly(Trainer(folder, engine=engine), data)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gradient_accumulation": 0}, "gradient_accumulation is at least 1, not 0"),
        ({"eval_every": 0}, "eval_every is at least 1, not 0"),
        ({"eval_every": True}, "eval_every is at least 1, not True; it is a whole number"),
        ({"checkpoint_every": -1}, "checkpoint_every is at least 1, not -1"),
        ({"decay": -5}, "decay is at least 0, not -5"),
        ({"decay": 0.5}, "decay is at least 0, not 0.5; it is a whole number"),
        ({"epochs": None}, "epochs is at least 0, not None"),
        ({"warmup_steps": None}, "warmup_steps is at least 0, not None"),
        ({"gradient_accumulation": None}, "gradient_accumulation is at least 1, not None"),
        ({"validation": iter([])}, "validation is an iterator"),
    ],
)
def test_settings_that_make_no_sense(folder, batches, settings, message):
    with pytest.raises(DataError, match=message):
        quietly(Trainer(folder), batches, **settings)


def test_decay_needs_a_length(folder):
    class Loader:
        def __iter__(self):
            return iter([small.data()])

    with pytest.raises(DataError, match="decay needs to know how many steps there are"):
        quietly(Trainer(folder), Loader(), decay=True)
    trainer = Trainer(folder)
    quietly(trainer, Loader(), learning_rate=0.1, epochs=3, decay=4)
    assert trainer.optimizer.get_learning_rate() == np.float32(0.1 / 4)


def test_wrong_element_type(folder, engine):
    x, target = small.data()
    with pytest.raises(FeedError, match=r"Input 'x' of the training model is declared as float32"):
        quietly(Trainer(folder, engine=engine), [(x.astype(np.float64), target)])


def test_missing_models(tmp_path, batches, engine):
    small.generate(tmp_path, optimizer=None)
    trainer = Trainer(tmp_path, engine=engine)
    with pytest.raises(ArtifactError, match=r"no optimizer_model\.onnx.*pass optimizer="):
        quietly(trainer, batches)
    (tmp_path / "eval_model.onnx").unlink()
    trainer = Trainer(tmp_path, engine=engine)
    with pytest.raises(ArtifactError, match=r"has no eval_model\.onnx"):
        trainer.evaluate(batches)
    trainer.export(tmp_path / "model.onnx", [small.Y])
    assert (tmp_path / "model.onnx").is_file()


def test_nothing_to_evaluate(folder, engine):
    trainer = Trainer(folder, engine=engine)
    with pytest.raises(DataError, match="There is nothing to evaluate"):
        trainer.evaluate([])
    assert trainer.module.training


def test_paths_that_are_none(folder, batches):
    with pytest.raises(StateError, match="The folder of artifacts is given by its path, not by"):
        Trainer(None)
    trainer = Trainer(folder)
    with pytest.raises(StateError, match="The folder of checkpoints is given by its path, not by"):
        quietly(trainer, batches, checkpoint_every=1, checkpoint_directory=3)
    with pytest.raises(StateError, match="The checkpoint is given by its path, not by a int"):
        trainer.save(3)


@pytest.mark.parametrize("value", [None, "high", np.ones(2), 1j], ids=str)
def test_metrics_that_are_no_numbers(folder, batches, value):
    message = r"The metric 'odd' gave .*: a metric is one number, of the whole data set"
    with pytest.raises(DataError, match=message):
        Trainer(folder).evaluate(batches, {"odd": lambda outputs, inputs: value})


def test_nothing_to_resume(folder, tmp_path):
    with pytest.raises(CheckpointNotFoundError, match=r"There is no checkpoint in .*checkpoints"):
        Trainer.resume(folder if not (folder / "checkpoints").exists() else tmp_path)
    with pytest.raises(CheckpointNotFoundError, match="gone"):
        Trainer(folder, checkpoint=tmp_path / "gone")


def test_unwritable_checkpoint_folder(folder, batches, tmp_path, engine):
    (tmp_path / "file").touch()
    trainer = Trainer(folder, engine=engine)
    with pytest.raises(CheckpointError, match=r"The folder .* cannot be made"):
        trainer.save(tmp_path / "file" / "step")


def test_corrupt_files(tmp_path, engine):
    small.generate(tmp_path)
    for name, message in [
        ("checkpoint", "checkpoint"),
        ("training_model.onnx", "training_model.onnx"),
        ("optimizer_model.onnx", "optimizer_model.onnx"),
    ]:
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(blockdsl.BlockError, match=message):
            Trainer(tmp_path, engine=engine)
        (tmp_path / name).write_bytes(whole)
    Trainer(tmp_path, engine=engine)


def test_unknown_device(folder):
    with pytest.raises(EngineError, match="Unsupported device type: 'tpu'"):
        Trainer(folder, device="tpu")


def test_unknown_output(folder, tmp_path, engine):
    trainer = Trainer(folder, engine=engine)
    with pytest.raises((UnknownNameError, EngineError), match=r"Net/.*Gemm"):
        trainer.export(tmp_path / "model.onnx", ["Net/Linear_1/Gem"])
    assert not (tmp_path / "model.onnx").exists()
