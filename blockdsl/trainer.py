"""`Trainer`: a training loop over artifacts, with checkpoints that continue bit for bit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from blockdsl.api import CheckpointState, LinearLRScheduler, Module, Optimizer
from blockdsl.backend.files import StrPath
from blockdsl.data import Batch, check_repeatable, epoch_of, in_order
from blockdsl.errors import ArtifactError, CheckpointError, CheckpointNotFoundError, DataError
from blockdsl.evaluation import Metric, evaluate, outputs_of
from blockdsl.progress import Progress

CHECKPOINTS = "checkpoints"
"""The folder in a directory of artifacts that checkpoints go to."""
PEAK = "learning_rate"
"""The property that keeps the highest learning rate of a schedule."""


@dataclass
class History:
    """What a run measured.

    Attributes:
        losses: The training loss of every optimizer step.
        evaluations: (optimizer step, measures) of every evaluation.
    """

    losses: list[float] = field(default_factory=list)
    evaluations: list[tuple[int, dict[str, float]]] = field(default_factory=list)


class Trainer:
    """Trains the model of a directory of artifacts.

    Args:
        artifacts: The directory that `generate_artifacts` wrote.
        prefix: What the names of its files begin with.
        checkpoint: Where to start from; the artifacts' own checkpoint by default.
        device: "cpu", "cuda" or "cuda:1".
        engine: "session" or "training"; by default what the installed runtime offers.

    Raises:
        ArtifactError: The directory has no training model.
        CheckpointNotFoundError: There is no such checkpoint.

    Example:
        >>> import tempfile, blockdsl
        >>> from blockdsl import artifacts
        >>> with blockdsl.empty_base() as handle:
        ...     x = blockdsl.input("x", shape=("batch", 2))
        ...     y = blockdsl.blocks.Linear(2, 1)(x)
        ...     blockdsl.graph.current().set_outputs([y])
        >>> rows = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)
        >>> data = blockdsl.Batches(rows, rows.sum(1, keepdims=True), size=16)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     artifacts.generate_artifacts(
        ...         handle.model,
        ...         loss=artifacts.LossType.MSELoss,
        ...         optimizer=artifacts.OptimType.AdamW,
        ...         artifact_directory=folder,
        ...     )
        ...     trainer = Trainer(folder)
        ...     _ = trainer.fit(data, epochs=40, learning_rate=0.05, progress=False)
        ...     trainer.evaluate(data)["loss"] < 0.01
        True
    """

    def __init__(
        self,
        artifacts: StrPath,
        *,
        prefix: str = "",
        checkpoint: StrPath | None = None,
        device: str = "cpu",
        engine: str | None = None,
    ) -> None:
        self._directory, self._prefix = Path(artifacts), prefix
        training_model = self._file("training_model.onnx")
        if training_model is None:
            raise ArtifactError(
                f"{os.fspath(artifacts)!r} has no {prefix}training_model.onnx: write it with "
                f"blockdsl.artifacts.generate_artifacts or `blockdsl generate`."
            )
        start = checkpoint or self._directory / f"{prefix}checkpoint"
        self.state = CheckpointState.load_checkpoint(start, engine=engine)
        self._eval_model = self._file("eval_model.onnx")
        self.module = Module(training_model, self.state, self._eval_model, device=device)
        optimizer_model = self._file("optimizer_model.onnx")
        self.optimizer = Optimizer(optimizer_model, self.module) if optimizer_model else None

    @classmethod
    def resume(
        cls,
        artifacts: StrPath,
        checkpoint: StrPath | None = None,
        *,
        prefix: str = "",
        device: str = "cpu",
        engine: str | None = None,
    ) -> Trainer:
        """Go on from a checkpoint that `fit` or `save` wrote.

        Args:
            artifacts: The directory of artifacts.
            checkpoint: The checkpoint; by default the one that was written last to the directory's
                `checkpoints`.
            prefix: As for `Trainer`.
            device: As for `Trainer`.
            engine: As for `Trainer`.

        Returns:
            A trainer whose `fit`, called with the same arguments, does what is left to do.

        Raises:
            CheckpointNotFoundError: There is none.
        """
        found = checkpoint or latest_checkpoint(artifacts, prefix)
        if found is None:
            raise CheckpointNotFoundError(
                f"There is no checkpoint in {os.fspath(Path(artifacts) / CHECKPOINTS)!r}: train "
                f"with checkpoint_every, or name the checkpoint to resume from."
            )
        return cls(artifacts, prefix=prefix, checkpoint=found, device=device, engine=engine)

    def fit(
        self,
        data: Iterable[Batch],
        *,
        epochs: int = 1,
        learning_rate: float | None = None,
        warmup_steps: int = 0,
        decay: bool = False,
        gradient_accumulation: int = 1,
        validation: Iterable[Batch] | None = None,
        metrics: Mapping[str, Metric] | None = None,
        eval_every: int | None = None,
        checkpoint_every: int | None = None,
        checkpoint_directory: StrPath | None = None,
        progress: bool = True,
        on_step: Callable[[int, float], None] | None = None,
        on_evaluation: Callable[[int, dict[str, float]], None] | None = None,
    ) -> History:
        """Train until so many epochs are done, those before a resumed checkpoint included.

        Args:
            data: What can be iterated for every epoch: `Batches`, a list of batches, a loader.
            epochs: How many times to go through the data.
            learning_rate: The highest learning rate; the optimizer's own if left out.
            warmup_steps: Optimizer steps over which the rate rises from zero.
            decay: Whether the rate then falls to zero at the last step.
            gradient_accumulation: How many batches make one optimizer step; the gradients add up.
            validation: Data to evaluate on.
            metrics: What to measure on it beside the loss.
            eval_every: Optimizer steps between evaluations; once an epoch if left out.
            checkpoint_every: Optimizer steps between checkpoints, of which there is one at the end
                too; none at all if left out.
            checkpoint_directory: Where they go; `checkpoints` in the artifacts by default.
            progress: Whether to show progress on the terminal.
            on_step: Called after every optimizer step with its number and loss.
            on_evaluation: Called after every evaluation with the step and what was measured.

        Returns:
            The losses and evaluations of this call.

        Raises:
            ArtifactError: There is no optimizer model, or no evaluation model to validate with.
            DataError: The data cannot be iterated again, or does not fit the model.
        """
        if self.optimizer is None:
            raise ArtifactError(
                f"{os.fspath(self._directory)!r} has no {self._prefix}optimizer_model.onnx, so "
                f"nothing can be trained: pass optimizer= to generate_artifacts."
            )
        check_repeatable(data, "data")
        if validation is not None:
            check_repeatable(validation, "validation")
            self._check_eval_model()
        _check_count("epochs", epochs, least=0)
        _check_count("warmup_steps", warmup_steps, least=0)
        _check_count("gradient_accumulation", gradient_accumulation)
        _check_count("eval_every", eval_every)
        _check_count("checkpoint_every", checkpoint_every)
        steps_per_epoch = _steps(data, gradient_accumulation)
        schedule = self._schedule(learning_rate, warmup_steps, decay, epochs, steps_per_epoch)
        folder = Path(checkpoint_directory or self._directory / CHECKPOINTS)
        history = History()
        self.module.lazy_reset_grad()  # gradients may be left of a run that was interrupted

        def save() -> None:
            self.save(folder / f"{self._prefix}step-{self.step:08d}")

        def validate(held_out: Iterable[Batch]) -> None:
            measures = self.evaluate(held_out, metrics)
            history.evaluations.append((self.step, measures))
            bar.report(self.step, measures)
            if on_evaluation is not None:
                on_evaluation(self.step, measures)

        with Progress(enabled=progress, total=epochs * steps_per_epoch) as bar:
            bar.advance(self.step)
            for epoch in range(self._done("epoch"), epochs):
                for loss in self._epoch(data, epoch, gradient_accumulation):
                    history.losses.append(loss)
                    if schedule is not None:
                        schedule.step()
                    bar.advance(1, loss)
                    if on_step is not None:
                        on_step(self.step, loss)
                    if validation is not None and eval_every and self.step % eval_every == 0:
                        validate(validation)
                    if checkpoint_every and self.step % checkpoint_every == 0:
                        save()
                self.state.properties["epoch"], self.state.properties["batch"] = epoch + 1, 0
                if validation is not None and not eval_every:
                    validate(validation)
        if checkpoint_every and history.losses and self.step % checkpoint_every:
            save()
        return history

    def evaluate(
        self, data: Iterable[Batch], metrics: Mapping[str, Metric] | None = None
    ) -> dict[str, float]:
        """The mean loss, and other means, over some data, by the evaluation model.

        Args:
            data: The batches.
            metrics: Functions of a batch's outputs and inputs, both by name.

        Returns:
            "loss" and each metric, every batch weighted by its rows.

        Raises:
            ArtifactError: There is no evaluation model.
            DataError: There is no data, or it does not fit the model.
        """
        self._check_eval_model()
        return evaluate(self.module, data, metrics or {})

    def save(self, checkpoint: StrPath) -> None:
        """Write a checkpoint from which `resume` continues bit for bit.

        Raises:
            CheckpointError: It cannot be written; the old file stays then.
        """
        folder = Path(checkpoint).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"The folder {os.fspath(folder)!r} cannot be made: {error.strerror}."
            ) from error
        CheckpointState.save_checkpoint(self.state, checkpoint, include_optimizer_state=True)

    def export(self, path: StrPath, output_names: Sequence[str]) -> None:
        """Write the trained model for inference.

        Args:
            path: The file.
            output_names: The tensors of the evaluation model (of the training model without its
                gradients if there is none) that it is to put out.

        Raises:
            UnknownNameError: The model has no tensor of that name.
        """
        self.module.export_model_for_inferencing(path, output_names)

    @property
    def step(self) -> int:
        """The optimizer steps taken so far."""
        return self.optimizer.step_count if self.optimizer is not None else 0

    def _epoch(self, data: Iterable[Batch], epoch: int, accumulation: int) -> Iterator[float]:
        """Train on what is left of an epoch; the mean loss of every optimizer step."""
        names, losses, done = self.module.input_names(), [], self._done("batch")
        count = done
        for count, batch in enumerate(epoch_of(data, epoch, done), start=done + 1):
            losses.append(float(np.mean(outputs_of(self.module, in_order(batch, names))[0])))
            if len(losses) == accumulation:
                yield self._optimizer_step(count, losses)
                losses = []
        if losses:
            yield self._optimizer_step(count, losses)
        if not count:
            raise DataError("There is nothing to train on: the data has no batch.")

    def _optimizer_step(self, batches: int, losses: list[float]) -> float:
        assert self.optimizer is not None
        self.optimizer.step()
        self.module.lazy_reset_grad()
        loss = float(np.mean(losses))
        properties = self.state.properties
        properties["batch"], properties["loss"] = batches, loss
        properties["framework"] = "onnxruntime"
        return loss

    def _schedule(
        self, rate: float | None, warmup: int, decay: bool, epochs: int, steps: int
    ) -> LinearLRScheduler | None:
        assert self.optimizer is not None
        if not warmup and not decay:
            if rate is not None:
                self.optimizer.set_learning_rate(rate)
            return None
        if decay and not steps:
            raise DataError(
                "decay needs to know how many steps there are, and the data has no length: use "
                "blockdsl.Batches or a list, or give its class a __len__."
            )
        if rate is None:
            # On resuming, the optimizer's own rate is somewhere on the way; the highest is kept.
            properties = self.state.properties
            if PEAK not in properties:
                properties[PEAK] = self.optimizer.get_learning_rate()
            rate = float(properties[PEAK])
        # Without decay the rate stays: a total that is never reached, to within float32.
        total = epochs * steps if decay else 2**53
        return LinearLRScheduler(self.optimizer, warmup, total, rate)

    def _done(self, what: str) -> int:
        properties = self.state.properties
        return int(properties[what]) if what in properties else 0

    def _check_eval_model(self) -> None:
        if self._eval_model is None:
            raise ArtifactError(
                f"{os.fspath(self._directory)!r} has no {self._prefix}eval_model.onnx, which "
                f"evaluation needs: generate the artifacts again."
            )

    def _file(self, name: str) -> Path | None:
        path = self._directory / f"{self._prefix}{name}"
        return path if path.is_file() else None


def latest_checkpoint(artifacts: StrPath, prefix: str = "") -> Path | None:
    """The checkpoint that `Trainer.fit` wrote last, None if there is none.

    Not the one of the highest step: that may be left from a longer run before this one.
    """
    found = [
        path
        for path in (Path(artifacts) / CHECKPOINTS).glob(f"{prefix}step-*")
        if path.name.removeprefix(f"{prefix}step-").isdigit()
    ]
    return max(found, key=lambda path: (path.stat().st_mtime_ns, path.name), default=None)


def _check_count(name: str, value: Any, least: int = 1) -> None:
    if value is not None and not (isinstance(value, int | np.integer) and value >= least):
        raise DataError(f"{name} is at least {least}, not {value!r}; it is a whole number.")


def _steps(data: Iterable[Batch], accumulation: int) -> int:
    """How many optimizer steps an epoch has, 0 if the data does not tell its length."""
    try:
        return -(-len(data) // accumulation)  # type: ignore[arg-type]
    except TypeError:
        return 0
