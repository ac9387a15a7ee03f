"""What a user holds: artifacts opened for training, evaluation, checkpoints and export."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from blockdsl.api import CheckpointState, Module, Optimizer, set_seed
from blockdsl.backend.files import StrPath, text_of
from blockdsl.backend.seed import unrepeatable
from blockdsl.data import Batch, check_repeatable
from blockdsl.errors import (
    ArtifactError,
    BlockWarning,
    CheckpointError,
    CheckpointNotFoundError,
)
from blockdsl.evaluation import Metric, evaluate
from blockdsl.trainer.checkpoints import (
    CHECKPOINTS,
    SEED,
    check_resumable,
    checkpoint_name,
    kept,
    latest_checkpoint,
    nothing_to_resume,
    remove_leftovers,
)
from blockdsl.trainer.fit import Fit, History, Settings

_log = logging.getLogger(__name__)


class Trainer:
    """Trains the model of a directory of artifacts.

    Args:
        artifacts: The directory that `generate_artifacts` wrote.
        prefix: What the names of its files begin with.
        checkpoint: Where to start from; the artifacts' own checkpoint by default.
        device: "cpu", "cuda" or "cuda:1".
        engine: "session" or "training"; by default what the installed runtime offers.
        seed: What the masks of dropout follow from, with the epoch and the batch; by default what
            the checkpoint's run had, else 0.

    Attributes:
        state: The parameters and all else that a checkpoint holds.
        module: What computes the loss and the gradients.
        optimizer: What changes the parameters, None if there is no optimizer model.
        prefix: As given.
        seed: As given, or as found in the checkpoint.
        unfinished: Whether the next `fit` finishes the run of the state instead of beginning one.

    Raises:
        ArtifactError: The directory has no training model.
        CheckpointNotFoundError: There is no such checkpoint.

    Example:
        >>> import tempfile, blockdsl
        >>> import numpy as np
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
        seed: int | None = None,
    ) -> None:
        self._directory, self.prefix = Path(text_of(artifacts, "folder of artifacts")), prefix
        training_model = self._file("training_model.onnx")
        if training_model is None:
            raise ArtifactError(
                f"{os.fspath(artifacts)!r} has no {prefix}training_model.onnx: write it with "
                f"blockdsl.artifacts.generate_artifacts or `blockdsl generate`."
            )
        start = checkpoint or self._directory / f"{prefix}checkpoint"
        self.state = CheckpointState.load_checkpoint(start, engine=engine)
        self.seed = kept(self.state, SEED) if seed is None else seed
        # Nodes with a generator of their own begin it with what is set when the module is made.
        set_seed(self.seed, kept(self.state, "epoch"), kept(self.state, "batch"))
        self.state.properties[SEED] = self.seed
        self._eval_model = self._file("eval_model.onnx")
        self.module = Module(training_model, self.state, self._eval_model, device=device)
        _log.info("%s", _what_is_trained(self.state))
        optimizer_model = self._file("optimizer_model.onnx")
        self.optimizer = Optimizer(optimizer_model, self.module) if optimizer_model else None
        self.unfinished = False

    @classmethod
    def resume(
        cls,
        artifacts: StrPath,
        checkpoint: StrPath | None = None,
        *,
        prefix: str = "",
        device: str = "cpu",
        engine: str | None = None,
        seed: int | None = None,
    ) -> Trainer:
        """Go on from a checkpoint that `fit` or `save` wrote.

        Args:
            artifacts: The directory of artifacts.
            checkpoint: The checkpoint; by default the one that was written last to the directory's
                `checkpoints`, of those that belong to the artifacts. One that is named may belong
                to the same artifacts before they were generated again, but not to others.
            prefix: As for `Trainer`.
            device: As for `Trainer`.
            engine: As for `Trainer`.
            seed: As for `Trainer`.

        Returns:
            A trainer whose `fit`, called with the same arguments, does what is left to do.

        Warns:
            BlockWarning: The training model draws at random in a way that cannot be resumed.

        Raises:
            CheckpointNotFoundError: There is none of these artifacts.
            CheckpointError: The checkpoint belongs to other artifacts.
        """
        found = checkpoint or latest_checkpoint(artifacts, prefix)
        if found is None:
            raise CheckpointNotFoundError(nothing_to_resume(artifacts, prefix))
        if checkpoint is not None:
            check_resumable(artifacts, prefix, checkpoint)
        trainer = cls(
            artifacts, prefix=prefix, checkpoint=found, device=device, engine=engine, seed=seed
        )
        trainer.unfinished = True
        if drawing := unrepeatable(Path(artifacts) / f"{prefix}training_model.onnx"):
            warnings.warn(
                f"The training model draws at random by {', '.join(drawing)}, whose generator no "
                f"checkpoint holds: what is left of the run will not be bit for bit what it would "
                f"have been. Draw in the data and feed it to the model, or by Dropout without a "
                f"seed.",
                BlockWarning,
                stacklevel=2,
            )
        return trainer

    def fit(
        self,
        data: Iterable[Batch],
        *,
        epochs: int = 1,
        learning_rate: float | None = None,
        warmup_steps: int = 0,
        decay: bool | int = False,
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
        """Train for so many epochs.

        Every call is a run of its own, which goes on from where the last one ended: another call
        trains as many epochs more. A run that was resumed, or that an exception has ended, is
        finished first: `epochs` then counts those that it has done.

        Args:
            data: What can be iterated for every epoch: `Batches`, a list of batches, a loader.
            epochs: How many times this run goes through the data.
            learning_rate: The highest learning rate; the optimizer's own if left out.
            warmup_steps: Optimizer steps of the run over which the rate rises from zero.
            decay: Whether the rate then falls to zero at the last step, or at which step of the
                run it is to.
            gradient_accumulation: How many batches make one optimizer step; the gradients add up.
            validation: Data to evaluate on.
            metrics: Metrics to compute on it beside the loss; see `evaluate`.
            eval_every: Optimizer steps between evaluations; once an epoch if left out.
            checkpoint_every: Optimizer steps between checkpoints, of which there is one at the end
                too; none at all if left out.
            checkpoint_directory: Where they go; `checkpoints` in the artifacts by default.
            progress: Whether to show progress on the terminal.
            on_step: Called after every optimizer step with its number and loss.
            on_evaluation: Called after every evaluation with the step and what was measured.

        Returns:
            The losses and evaluations of this call.

        Warns:
            BlockWarning: The run that was resumed is complete: nothing is trained.

        Raises:
            ArtifactError: There is no optimizer model, or no evaluation model to validate with.
            DataError: The data cannot be iterated again, or does not fit the model; the learning
                rate is 0 after the decay of the last run, and no other is given.
        """
        if self.optimizer is None:
            raise ArtifactError(
                f"{os.fspath(self._directory)!r} has no {self.prefix}optimizer_model.onnx, so "
                f"nothing can be trained: pass optimizer= to generate_artifacts."
            )
        check_repeatable(data, "data")
        if validation is not None:
            check_repeatable(validation, "validation")
            self._check_eval_model()
        settings = Settings(
            epochs,
            learning_rate,
            warmup_steps,
            decay,
            gradient_accumulation,
            eval_every,
            checkpoint_every,
        )
        directory = checkpoint_directory or self._directory / CHECKPOINTS
        folder = Path(text_of(directory, "folder of checkpoints"))
        fit = Fit(
            self,
            self.optimizer,
            data,
            settings,
            folder,
            validation,
            metrics,
            on_step,
            on_evaluation,
        )
        return fit.run(progress=progress)

    def evaluate(
        self, data: Iterable[Batch], metrics: Mapping[str, Metric] | None = None
    ) -> dict[str, float]:
        """Return the loss and metrics over some data, by the evaluation model.

        Args:
            data: The batches.
            metrics: Metrics by name. A function takes the outputs and the inputs of the evaluation
                model, both by name, and is called once, with those of the whole data set: the
                batches joined along their first axis, scalars such as the loss as the mean of the
                batches' weighted by their rows. What is too large for the memory, or has batches
                that cannot be joined, is for an object with `reset()`, `update(outputs, inputs)`,
                called with each batch, and `compute()`.

        Returns:
            "loss", and each metric. The loss is the mean of the batches' losses weighted by their
            rows: that of the data set if it is a mean over the rows. A loss that sums, or divides
            by something else (`ignore_index`, weights of classes), depends on the size of batches.

        Raises:
            ArtifactError: There is no evaluation model.
            DataError: There is no data, or it does not fit the model; a metric gives no number.
            UnknownNameError: A metric reads a tensor that the evaluation model does not have.
        """
        self._check_eval_model()
        return evaluate(self.module, data, metrics or {})

    def save(self, checkpoint: StrPath | None = None) -> None:
        """Write a checkpoint from which `resume` continues bit for bit.

        Args:
            checkpoint: The file; by default the one of the present step in the artifacts'
                `checkpoints`, where `resume` looks.

        Raises:
            CheckpointError: It cannot be written; the old file stays then.
        """
        default = self._directory / CHECKPOINTS / checkpoint_name(self.step, self.prefix)
        path = Path(text_of(checkpoint or default, "checkpoint"))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"The folder {os.fspath(path.parent)!r} cannot be made: {error.strerror}."
            ) from error
        remove_leftovers(path)
        CheckpointState.save_checkpoint(self.state, path, include_optimizer_state=True)

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

    def _check_eval_model(self) -> None:
        if self._eval_model is None:
            raise ArtifactError(
                f"{os.fspath(self._directory)!r} has no {self.prefix}eval_model.onnx, which "
                f"evaluation needs: generate the artifacts again."
            )

    def _file(self, name: str) -> Path | None:
        path = self._directory / f"{self.prefix}{name}"
        return path if path.is_file() else None


def _what_is_trained(state: CheckpointState) -> str:
    frozen = [name for name, parameter in state.parameters if not parameter.requires_grad]
    total = len(state.parameters)
    listed = ", ".join(frozen[:5]) + (f" and {len(frozen) - 5} more" if len(frozen) > 5 else "")
    return f"Trains {total - len(frozen)} of {total} parameters" + (
        f"; frozen: {listed}" if frozen else ""
    )
