"""`Trainer` with the settings of onnxruntime's trainer.cc, and that program's loop on the C API."""

from __future__ import annotations

import numpy as np
import pytest
from onnxruntime import SessionOptions
from onnxruntime.capi import _pybind_state as native
from typer.testing import CliRunner

import blockdsl
from blockdsl.backend.checkpoint import GROUP, load
from blockdsl.cli import app
from blockdsl.trainer import Trainer
from tests import small

EPOCHS, EVAL_INTERVAL, CHECKPOINT_INTERVAL = 6, 4, 10
RATE = 0.01  # trainer.cc's is 0.001: too slow to see
X, TARGET = small.data(rows=32)
DATA = blockdsl.Batches(X, TARGET, size=8)
VALIDATION = blockdsl.Batches(X[:8], TARGET[:8], size=8)


@pytest.fixture(params=[1, 2])
def accumulation(request):
    return request.param


@pytest.fixture
def folder(tmp_path):
    return small.generate(tmp_path)


def reference(folder, accumulation):
    """trainer.cc's loop: what it prints, evaluates and saves, by the count of batches."""
    device, options = native.OrtDevice(0, 0, 0), SessionOptions()
    state = native.load_checkpoint(str(folder / "checkpoint"))
    training, evaluation = (str(folder / f"{name}_model.onnx") for name in ("training", "eval"))
    module = native.Module(training, state, evaluation, device, options)
    optimizer = native.Optimizer(str(folder / "optimizer_model.onnx"), state, device, options)
    total = EPOCHS * len(DATA)
    # The binding of 1.19.2 takes the two counts in the other order than it documents.
    scheduler = native.LinearLRScheduler(optimizer, total, total // 3, RATE)

    losses, rates, evaluations, saved = [], [], {}, {}
    batch_index = 0
    for epoch in range(EPOCHS):
        for batch in DATA.epoch(epoch):
            losses.append(_first(module.train_step, batch))
            if (batch_index + 1) % accumulation == 0:
                optimizer.optimizer_step()
                scheduler.scheduler_step()
                module.lazy_reset_grad()
                rates.append(optimizer.get_learning_rate())
            if (batch_index + 1) % EVAL_INTERVAL == 0:
                evaluations[batch_index + 1] = _first(module.eval_step, next(iter(VALIDATION)))
            if (batch_index + 1) % CHECKPOINT_INTERVAL == 0:
                state.add_property("epoch", epoch)
                state.add_property("loss", losses[-1])
                state.add_property("framework", "onnxruntime")
                path = folder / f"ckpt_{batch_index}"
                native.save_checkpoint(state, str(path), False)
                saved[batch_index + 1] = load(path)
            batch_index += 1
    return losses, rates, evaluations, saved


def _first(step, batch):
    fetched = native.OrtValueVector()
    step(list(batch), fetched)
    return float(fetched[0].numpy())


def test_the_same_run(folder, accumulation):
    losses, rates, evaluations, saved = reference(folder, accumulation)
    trainer, found = Trainer(folder, engine="training"), []
    history = trainer.fit(
        DATA,
        epochs=EPOCHS,
        learning_rate=RATE,
        warmup_steps=EPOCHS * len(DATA) // 3,
        decay=EPOCHS * len(DATA),
        gradient_accumulation=accumulation,
        validation=VALIDATION,
        eval_every=EVAL_INTERVAL // accumulation,
        checkpoint_every=CHECKPOINT_INTERVAL // accumulation,
        on_step=lambda step, loss: found.append(trainer.optimizer.get_learning_rate()),
        progress=False,
    )
    steps = np.reshape(losses, (-1, accumulation))
    assert history.losses == steps.mean(axis=1).tolist()
    assert found == rates
    assert history.evaluations == [
        (n // accumulation, {"loss": loss}) for n, loss in evaluations.items()
    ]

    checkpoints = {
        c.groups[GROUP].step * accumulation: c
        for c in map(load, sorted((folder / "checkpoints").iterdir()))
    }
    assert len(saved) == 2
    assert checkpoints.keys() == {*saved, EPOCHS * len(DATA)}  # and one at the end
    for batches, expected in saved.items():
        ours = checkpoints[batches]
        for name, value in expected.trainable.items():
            np.testing.assert_array_equal(ours.trainable[name], value)
        loss = np.float32(steps[batches // accumulation - 1].mean())
        assert ours.properties["loss"] == loss
        assert accumulation > 1 or expected.properties["loss"] == loss
        for name in ("epoch", "framework"):
            assert ours.properties[name] == expected.properties[name]
        assert set(ours.properties) - set(expected.properties) == {
            *("batch", "seed", "first_epoch", "first_step")
        }


def test_the_same_run_from_the_command_line(folder, accumulation, tmp_path):
    _, _, _, saved = reference(folder, accumulation)
    np.savez(tmp_path / "train.npz", x=X, target=TARGET)
    done = CliRunner().invoke(
        app,
        f"train {folder} --data {folder}/train.npz --validation {folder}/train.npz --batch-size 8 "
        f"--epochs {EPOCHS} --learning-rate {RATE} --gradient-accumulation {accumulation} "
        f"--warmup-steps {EPOCHS * len(DATA) // 3} --decay-steps {EPOCHS * len(DATA)} "
        f"--eval-every {EVAL_INTERVAL // accumulation} --engine training "
        f"--checkpoint-every {CHECKPOINT_INTERVAL // accumulation}",
    )
    assert done.exit_code == 0, done.output
    for batches, expected in saved.items():
        ours = load(folder / "checkpoints" / f"step-{batches // accumulation:08d}")
        for name, value in expected.trainable.items():
            np.testing.assert_array_equal(ours.trainable[name], value)
