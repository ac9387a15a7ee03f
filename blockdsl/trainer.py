"""`Trainer`: a training loop over artifacts, with checkpoints that continue bit for bit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from blockdsl.api import CheckpointState, LinearLRScheduler, Module, Optimizer
from blockdsl.data import Array, Batch, epoch_of, in_order
from blockdsl.errors import ArtifactError, CheckpointNotFoundError, DataError
from blockdsl.progress import Progress

StrPath = str | os.PathLike[str]
Metric = Callable[[Mapping[str, Array], Mapping[str, Array]], float]
"""(outputs by name, inputs by name) -> a mean over the batch."""


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
        self.module = Module(
            training_model, self.state, self._file("eval_model.onnx"), device=device
        )
        optimizer_model = self._file("optimizer_model.onnx")
        self.optimizer = Optimizer(optimizer_model, self.module) if optimizer_model else None

    @classmethod
    def resume(
        cls, artifacts: StrPath, checkpoint: StrPath | None = None, **arguments: Any
    ) -> Trainer:
        """Go on from a checkpoint that `fit` or `save` wrote.

        Args:
            artifacts: The directory of artifacts.
            checkpoint: The checkpoint; by default the one of the highest step in the directory's
                `checkpoints`.
            **arguments: As for `Trainer`.

        Returns:
            A trainer whose `fit`, called with the same arguments, does what is left to do.

        Raises:
            CheckpointNotFoundError: There is none.
        """
        found = checkpoint or _latest(Path(artifacts) / "checkpoints")
        return cls(artifacts, checkpoint=found, **arguments)

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
            checkpoint_every: Optimizer steps between checkpoints; none if left out.
            checkpoint_directory: Where they go; `checkpoints` in the artifacts by default.
            progress: Whether to show progress on the terminal.
            on_step: Called after every optimizer step with its number and loss.

        Returns:
            The losses and evaluations of this call.

        Raises:
            ArtifactError: There is no optimizer model.
            DataError: The data cannot be iterated again, or does not fit the model.
        """
        if self.optimizer is None:
            raise ArtifactError(
                "There is no optimizer model: pass optimizer= to generate_artifacts."
            )
        if gradient_accumulation < 1:
            raise DataError(f"gradient_accumulation is at least 1, not {gradient_accumulation}.")
        steps_per_epoch = _steps(data, gradient_accumulation)
        schedule = self._schedule(learning_rate, warmup_steps, decay, epochs, steps_per_epoch)
        folder = Path(checkpoint_directory or self._directory / "checkpoints")
        history = History()
        with Progress(enabled=progress, total=epochs * steps_per_epoch) as bar:
            bar.advance(self.step, None)
            for epoch in range(self._done("epoch"), epochs):
                for loss in self._epoch(data, epoch, gradient_accumulation):
                    history.losses.append(loss)
                    if schedule is not None:
                        schedule.step()
                    bar.advance(1, loss)
                    if on_step is not None:
                        on_step(self.step, loss)
                    if validation is not None and eval_every and self.step % eval_every == 0:
                        history.evaluations.append((self.step, self.evaluate(validation, metrics)))
                    if checkpoint_every and self.step % checkpoint_every == 0:
                        self.save(folder / f"step-{self.step:08d}")
                self.state.properties["epoch"], self.state.properties["batch"] = epoch + 1, 0
                if validation is not None and not eval_every:
                    history.evaluations.append((self.step, self.evaluate(validation, metrics)))
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
        """
        measured: dict[str, list[float]] = {"loss": [], **{name: [] for name in metrics or {}}}
        rows = []
        self.module.eval()
        try:
            names, output_names = self.module.input_names(), self.module.output_names()
            for batch in data:
                inputs = in_order(batch, names)
                outputs = self._outputs(inputs)
                measured["loss"].append(float(np.mean(outputs[0])))
                by_name = dict(zip(output_names, outputs, strict=True))
                for name, metric in (metrics or {}).items():
                    measured[name].append(metric(by_name, dict(zip(names, inputs, strict=True))))
                rows.append(len(inputs[0]) if np.ndim(inputs[0]) else 1)
        finally:
            self.module.train()
        if not rows:
            raise DataError("There is nothing to evaluate: the data has no batch.")
        return {name: float(np.average(v, weights=rows)) for name, v in measured.items()}

    def save(self, checkpoint: StrPath) -> None:
        """Write a checkpoint from which `resume` continues bit for bit.

        Raises:
            CheckpointError: It cannot be written; the old file stays then.
        """
        Path(checkpoint).parent.mkdir(parents=True, exist_ok=True)
        CheckpointState.save_checkpoint(self.state, checkpoint, include_optimizer_state=True)

    def export(self, path: StrPath, output_names: list[str]) -> None:
        """Write the trained model for inference.

        Args:
            path: The file.
            output_names: The tensors of the evaluation model that it is to put out.
        """
        self.module.export_model_for_inferencing(path, output_names)

    @property
    def step(self) -> int:
        """The optimizer steps taken so far."""
        return self.optimizer.step_count if self.optimizer is not None else 0

    def _epoch(self, data: Iterable[Batch], epoch: int, accumulation: int) -> Iterable[float]:
        """Train on what is left of an epoch; the mean loss of every optimizer step."""
        assert self.optimizer is not None
        names, losses, done = self.module.input_names(), [], self._done("batch")
        count = 0
        for count, batch in enumerate(epoch_of(data, epoch), start=1):
            if count <= done:
                continue
            losses.append(float(np.mean(self._outputs(in_order(batch, names))[0])))
            if len(losses) == accumulation:
                yield self._optimizer_step(count, losses)
        if losses:
            yield self._optimizer_step(count, losses)

    def _optimizer_step(self, batches: int, losses: list[float]) -> float:
        assert self.optimizer is not None
        self.optimizer.step()
        self.module.lazy_reset_grad()
        loss = float(np.mean(losses))
        losses.clear()
        properties = self.state.properties
        properties["batch"], properties["loss"] = batches, loss
        properties["framework"] = "onnxruntime"
        return loss

    def _outputs(self, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
        outputs = self.module(*inputs)
        return outputs if isinstance(outputs, tuple) else (outputs,)  # type: ignore[return-value]

    def _schedule(
        self, rate: float | None, warmup: int, decay: bool, epochs: int, steps: int
    ) -> LinearLRScheduler | None:
        assert self.optimizer is not None
        if not warmup and not decay:
            if rate is not None:
                self.optimizer.set_learning_rate(rate)
            return None
        if rate is None:
            rate = self.optimizer.get_learning_rate()
        # Without decay the rate stays: a total that is never reached, to within float32.
        total = epochs * steps if decay else 2**53
        return LinearLRScheduler(self.optimizer, warmup, total, rate)

    def _done(self, what: str) -> int:
        properties = self.state.properties
        return int(properties[what]) if what in properties else 0

    def _file(self, name: str) -> Path | None:
        path = self._directory / f"{self._prefix}{name}"
        return path if path.is_file() else None


def _steps(data: Iterable[Batch], accumulation: int) -> int:
    """How many optimizer steps an epoch has, 0 if the data does not tell its length."""
    try:
        return -(-len(data) // accumulation)  # type: ignore[arg-type]
    except TypeError:
        return 0


def _latest(directory: Path) -> Path:
    found = sorted(directory.glob("step-*")) if directory.is_dir() else []
    found = [path for path in found if path.suffix != ".data"]
    if not found:
        raise CheckpointNotFoundError(
            f"There is no checkpoint in {os.fspath(directory)!r}: train with checkpoint_every, or "
            f"name the checkpoint to resume from."
        )
    return found[-1]
