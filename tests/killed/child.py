"""A run that may be killed at any moment: `python -m tests.killed.child '<json of a Life>'`.

It goes on from the last checkpoint if there is one, tells of every step and every save, and, if it
is asked to, kills itself inside a save after so many lines of Python, or at its end.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import blockdsl
from blockdsl import blocks, optim
from blockdsl.backend.checkpoint import dumps, load, storage
from blockdsl.trainer import latest_checkpoint
from tests import runs

ROWS, SIZE, ACCUMULATION, EVERY = 44, 4, 2, 3
STEPS_PER_EPOCH = -(-ROWS // SIZE // ACCUMULATION)  # 11 batches: the last makes a step of its own
OVERWRITTEN = "checkpoints/last"

OPTIMIZERS = {
    # A checkpoint for every save, and moments that the training engine's C classes hold ...
    "inline": optim.AdamW(weight_decay=0.01, clip_grad=optim.ClipGradNorm(0.5)),
    # ... or one that is overwritten, its tensors in a second file, by a plain optimizer model.
    "external": optim.AdamW(
        weight_decay=0.01, clip_grad=optim.ClipGradNorm(0.5), weight_decay_groups={"*bias": 0.0}
    ),
}


@dataclass(frozen=True)
class Life:
    """What a process is to do.

    Attributes:
        folder: The artifacts.
        engine: Which engine trains.
        form: "inline" or "external", of `OPTIMIZERS`: which optimizer and which checkpoints.
        epochs: When training ends.
        dies_in_save: The number of the save in which it kills itself, 0 for none.
        after_lines: How many lines of that save it runs before.
    """

    folder: str
    engine: str
    form: str
    epochs: int
    dies_in_save: int = 0
    after_lines: int = 0


def write_artifacts(folder: Path, form: str) -> None:
    def net(x):
        hidden = blocks.BatchNorm(16)(blocks.Linear(5, 16)(x)).relu()
        return blocks.Linear(16, 2)(blocks.Dropout(0.3)(hidden))

    runs.generate(folder, runs.forward(net, ("batch", 5)), optimizer=OPTIMIZERS[form])


class ToldTrainer(blockdsl.Trainer):
    """Tells of every save before it begins."""

    saves = 0
    life: Life

    def save(self, checkpoint=None):
        self.saves += 1
        say("saving", self.step)
        after = self.life.after_lines if self.saves == self.life.dies_in_save else None
        with counted_lines(after) as count:
            super().save(checkpoint)
        if after is not None:  # this save had fewer lines
            os.kill(os.getpid(), signal.SIGKILL)
        say("saved", self.step, digest(checkpoint), count())


@contextmanager
def counted_lines(deadly):
    """Counts the lines of Python that run, and kills the process when they are so many."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += 1
        if count == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    try:
        yield lambda: count
    finally:
        sys.settrace(None)


def digest(path):
    """What a checkpoint holds, in short; it does not depend on where its tensors are."""
    return hashlib.sha256(dumps(load(path))).hexdigest()


def say(*words):
    """Tell the parent; it lets the child run a few lines ahead, by a byte for each that it read."""
    sys.stdin.buffer.raw.read(1)
    print(*words, flush=True)


def main(life: Life) -> None:
    folder = Path(life.folder)
    if life.form == "external":
        storage.save.__kwdefaults__["external_data_threshold"] = 0
        overwritten = folder / OVERWRITTEN
        start = overwritten if overwritten.exists() else None
    else:
        overwritten, start = None, latest_checkpoint(folder)
    if start is None:
        trainer = ToldTrainer(folder, engine=life.engine, seed=11)
    else:
        trainer = ToldTrainer.resume(folder, start, engine=life.engine, seed=11)
    trainer.life = life
    say("begun", trainer.step)

    def on_step(step: int, loss: float) -> None:
        say("step", step, loss.hex(), trainer.optimizer.get_learning_rate().hex())
        if overwritten and step % EVERY == 0:
            trainer.save(overwritten)

    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 5)).astype(np.float32)
    data = blockdsl.Batches(x, np.tanh(x[:, :2]), size=SIZE, seed=4)
    trainer.fit(
        data,
        epochs=life.epochs,
        learning_rate=0.02,
        warmup_steps=STEPS_PER_EPOCH,
        decay=True,
        gradient_accumulation=ACCUMULATION,
        validation=data,
        checkpoint_every=None if overwritten else EVERY,
        progress=False,
        on_step=on_step,
        on_evaluation=lambda step, measures: say("evaluated", step, measures["loss"].hex()),
    )
    say("done", trainer.step)


if __name__ == "__main__":
    main(Life(**json.loads(sys.argv[1])))
