"""The loop of one call of `Trainer.fit`: epochs, optimizer steps, and what is due after each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blockdsl.api import LinearLRScheduler, Optimizer, set_seed
from blockdsl.data import Batch, epoch_of, in_order
from blockdsl.errors import BlockWarning, DataError, is_number
from blockdsl.evaluation import Metric, outputs_of
from blockdsl.progress import Progress
from blockdsl.trainer.checkpoints import (
    FIRST_EPOCH,
    FIRST_STEP,
    PEAK,
    checkpoint_name,
    kept,
)

if TYPE_CHECKING:
    from blockdsl.trainer.trainer import Trainer


@dataclass(repr=False)
class History:
    """What a run measured.

    Attributes:
        losses: The training loss of every optimizer step.
        evaluations: (optimizer step, measures) of every evaluation.
    """

    losses: list[float] = field(default_factory=list)
    evaluations: list[tuple[int, dict[str, float]]] = field(default_factory=list)

    def __repr__(self) -> str:
        """A line: a notebook shows what a cell returns, and the losses may be a million."""
        loss = f", the last with loss {self.losses[-1]:.4g}" if self.losses else ""
        measured = f", last {self.evaluations[-1]}" if self.evaluations else ""
        evaluations = f"{len(self.evaluations)} evaluations{measured}"
        return f"History({len(self.losses)} steps{loss}; {evaluations})"


@dataclass(frozen=True)
class Settings:
    """The numbers that `Trainer.fit` was called with; it explains them.

    Raises:
        DataError: A number makes no sense.
    """

    epochs: int
    learning_rate: float | None
    warmup_steps: int
    decay: bool | int
    gradient_accumulation: int
    eval_every: int | None
    checkpoint_every: int | None

    def __post_init__(self) -> None:
        _check_count("epochs", self.epochs, least=0, optional=False)
        _check_count("warmup_steps", self.warmup_steps, least=0, optional=False)
        if not isinstance(self.decay, bool):
            _check_count("decay", self.decay, least=0)
        _check_count("gradient_accumulation", self.gradient_accumulation, optional=False)
        _check_count("eval_every", self.eval_every)
        _check_count("checkpoint_every", self.checkpoint_every)

    def steps_of(self, data: Iterable[Batch]) -> int:
        """How many optimizer steps an epoch has, 0 if the data does not tell its length."""
        try:
            return -(-len(data) // self.gradient_accumulation)  # type: ignore[arg-type]
        except TypeError:
            return 0


@dataclass
class Fit:
    """What `Trainer.fit` was asked for, on its way.

    Attributes:
        trainer: Whose model is trained.
        optimizer: Its optimizer.
        data: The batches.
        settings: The numbers.
        folder: Where checkpoints go.
        validation: Data to evaluate on.
        metrics: Metrics to compute on it beside the loss.
        on_step: Called after every optimizer step.
        on_evaluation: Called after every evaluation.
    """

    trainer: Trainer
    optimizer: Optimizer
    data: Iterable[Batch]
    settings: Settings
    folder: Path
    validation: Iterable[Batch] | None
    metrics: Mapping[str, Metric] | None
    on_step: Callable[[int, float], None] | None
    on_evaluation: Callable[[int, dict[str, float]], None] | None

    def run(self, *, progress: bool) -> History:
        """Train; see `Trainer.fit`."""
        state, wanted = self.trainer.state, self.settings.epochs
        if not self.trainer.unfinished:
            self._begin()
        elif 0 < wanted <= kept(state, "epoch") - kept(state, FIRST_EPOCH):
            self._warn_complete()
        self.trainer.unfinished = True
        epochs, last = kept(state, FIRST_EPOCH) + wanted, self._last_step()
        self._schedule = self._make_schedule(last)
        self._history = History()
        self.trainer.module.lazy_reset_grad()  # gradients may be left of an interrupted run
        with Progress(enabled=progress, total=last) as self._bar:
            self._bar.advance(self.trainer.step)
            for epoch in range(kept(state, "epoch"), epochs):
                for loss in self._epoch(epoch):
                    self._after_step(loss)
                self._after_epoch(epoch)
        if self._history.losses and self.settings.checkpoint_every and not self._checkpoint_due():
            self._save()
        self.trainer.unfinished = False
        return self._history

    def _begin(self) -> None:
        """Begin another run, at the first epoch that has not begun."""
        state, rate = self.trainer.state, self.optimizer.get_learning_rate()
        epoch = kept(state, "epoch") + (kept(state, "batch") > 0)
        if self.settings.learning_rate is None and not rate and self.settings.epochs:
            raise DataError(
                "The learning rate is 0, where the decay of the last run has left it. Pass "
                "learning_rate= to train more."
            )
        for name, value in (
            ("epoch", epoch),
            ("batch", 0),
            (FIRST_EPOCH, epoch),
            (FIRST_STEP, self.trainer.step),
        ):
            state.properties[name] = value
        if PEAK in state.properties:
            state.properties[PEAK] = rate

    def _warn_complete(self) -> None:
        state = self.trainer.state
        done = kept(state, "epoch") - kept(state, FIRST_EPOCH)
        warnings.warn(
            f"Nothing is left to do: {done} epochs of this run are done, in {self.trainer.step} "
            f"steps, and the {self.settings.epochs} that were asked for count those. To finish the "
            f"run later ask for more, {done + self.settings.epochs} for as many again; another "
            f"call of Trainer.fit is another run.",
            BlockWarning,
            stacklevel=4,
        )

    def _last_step(self) -> int:
        """The optimizer step at which training ends, 0 if the data does not tell its length.

        Steps that were taken before by another loop belong to no epoch of this one.
        """
        settings, state = self.settings, self.trainer.state
        steps = settings.steps_of(self.data)
        if not steps:
            return 0
        done = (kept(state, "epoch") - kept(state, FIRST_EPOCH)) * steps
        done += -(-kept(state, "batch") // settings.gradient_accumulation)
        return self.trainer.step + max(settings.epochs * steps - done, 0)

    def _epoch(self, epoch: int) -> Iterator[float]:
        """Train on what is left of an epoch; the mean loss of every optimizer step."""
        losses: list[float] = []
        start = count = kept(self.trainer.state, "batch")
        for count, batch in enumerate(epoch_of(self.data, epoch, start), start=start + 1):
            set_seed(self.trainer.seed, epoch, count)
            losses.append(self._loss_of(batch))
            if len(losses) == self.settings.gradient_accumulation:
                yield self._optimizer_step(count, losses)
                losses = []
        if losses:
            yield self._optimizer_step(count, losses)
        if not count:
            raise DataError("There is nothing to train on: the data has no batch.")

    def _loss_of(self, batch: Batch) -> float:
        """Add a batch's gradients to those there are; its loss."""
        module = self.trainer.module
        loss = outputs_of(module, in_order(batch, module.input_names()))[0]
        return float(np.mean(loss))

    def _optimizer_step(self, batches: int, losses: list[float]) -> float:
        self.optimizer.step()
        self.trainer.module.lazy_reset_grad()
        loss = float(np.mean(losses))
        properties = self.trainer.state.properties
        properties["batch"], properties["loss"] = batches, loss
        # What onnxruntime-training's reference trainer writes beside the epoch and the loss:
        # readers of its checkpoints look for it.
        properties["framework"] = "onnxruntime"
        return loss

    def _after_step(self, loss: float) -> None:
        step = self.trainer.step
        self._history.losses.append(loss)
        if self._schedule is not None:
            self._schedule.step()
        self._bar.advance(1, loss)
        if self.on_step is not None:
            self.on_step(step, loss)
        if self.settings.eval_every and step % self.settings.eval_every == 0:
            self._validate()
        if self._checkpoint_due():
            self._save()

    def _after_epoch(self, epoch: int) -> None:
        properties = self.trainer.state.properties
        properties["epoch"], properties["batch"] = epoch + 1, 0
        if not self.settings.eval_every:
            self._validate()

    def _validate(self) -> None:
        if self.validation is None:
            return
        step, measures = self.trainer.step, self.trainer.evaluate(self.validation, self.metrics)
        self._history.evaluations.append((step, measures))
        self._bar.report(step, measures)
        if self.on_evaluation is not None:
            self.on_evaluation(step, measures)

    def _checkpoint_due(self) -> bool:
        every = self.settings.checkpoint_every
        return every is not None and self.trainer.step % every == 0

    def _save(self) -> None:
        self.trainer.save(self.folder / checkpoint_name(self.trainer.step, self.trainer.prefix))

    def _make_schedule(self, steps: int) -> LinearLRScheduler | None:
        """What sets the learning rate after every step, None if it stays as it is."""
        rate, warmup, decay = (
            self.settings.learning_rate,
            self.settings.warmup_steps,
            self.settings.decay,
        )
        if not warmup and not decay:
            if rate is not None:
                self.optimizer.set_learning_rate(rate)
            return None
        if decay is True and not steps:
            raise DataError(
                "decay needs to know how many steps there are, and the data has no length: use "
                "blockdsl.Batches or a list, give its class a __len__, or write decay=<the step at "
                "which the rate is to be 0>."
            )
        if rate is None:
            # On resuming, the optimizer's own rate is somewhere on the way; the highest is kept.
            properties = self.trainer.state.properties
            if PEAK not in properties:
                properties[PEAK] = self.optimizer.get_learning_rate()
            rate = float(properties[PEAK])
        first = kept(self.trainer.state, FIRST_STEP)
        total = steps - first if decay is True else decay or None
        return LinearLRScheduler(self.optimizer, warmup, total, rate, first_step=first)


def _check_count(name: str, value: Any, least: int = 1, optional: bool = True) -> None:
    if value is None and optional:
        return
    if not (is_number(value, whole=True) and value >= least):
        raise DataError(f"{name} is at least {least}, not {value!r}; it is a whole number.")
