"""`blockdsl train`, `evaluate` and `export`: what is done with artifacts."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any
from zipfile import BadZipFile

import numpy as np
import typer

from blockdsl.cli.app import app, console
from blockdsl.cli.log import Log
from blockdsl.data import Batches
from blockdsl.errors import ArtifactError, BlockWarning, DataError
from blockdsl.progress import in_words
from blockdsl.trainer import CHECKPOINTS, Trainer, latest_checkpoint
from blockdsl.trainer.checkpoints import newest_checkpoint

Artifacts = Annotated[Path, typer.Argument(help="The directory that `blockdsl generate` wrote.")]
Data = Annotated[
    Path, typer.Option(help="An .npz file with one array for each input of the model, by name.")
]
BatchSize = Annotated[int, typer.Option(min=1, help="How many rows a batch has.")]
Start = Annotated[
    Path | None,
    typer.Option(help="The checkpoint to use; by default the last one that training wrote."),
]
Prefix = Annotated[str, typer.Option(help="What the names of the artifacts' files begin with.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")]
Engine = Annotated[
    str | None,
    typer.Option(help="session or training; by default what the installed runtime offers."),
]


@app.command()
def train(
    artifacts: Artifacts,
    data: Data,
    epochs: Annotated[int, typer.Option(min=1, help="How often to go through the data.")] = 1,
    batch_size: BatchSize = 32,
    learning_rate: Annotated[
        float | None, typer.Option(help="The highest one; by default the optimizer's, 0.001.")
    ] = None,
    warmup_steps: Annotated[
        int, typer.Option(min=0, help="Steps over which the learning rate rises from 0.")
    ] = 0,
    decay: Annotated[
        bool, typer.Option("--decay", help="Let the learning rate fall to 0 at the end.")
    ] = False,
    decay_steps: Annotated[
        int | None, typer.Option(min=1, help="Let it fall to 0 at this step instead of the end.")
    ] = None,
    gradient_accumulation: Annotated[
        int, typer.Option(min=1, help="How many batches make one step.")
    ] = 1,
    validation: Annotated[
        Path | None, typer.Option(help="An .npz file to evaluate on while training.")
    ] = None,
    eval_every: Annotated[
        int | None, typer.Option(min=1, help="Steps between evaluations; default: an epoch.")
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(min=1, help="Steps between checkpoints; default: the end only.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Finish the run of the last checkpoint; --epochs counts those done."
        ),
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Finish the run of this checkpoint instead.")
    ] = None,
    prefix: Prefix = "",
    device: Device = "cpu",
    engine: Engine = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="What the order of the batches and the masks of dropout follow from; by default "
            "the checkpoint's, 0 at first.",
        ),
    ] = None,
    log_dir: Annotated[
        Path | None, typer.Option(help="A directory for TensorBoard's logs.")
    ] = None,
) -> None:
    """Train, show progress, and write a checkpoint at the end."""
    opened = Trainer.resume if resume or checkpoint else Trainer
    trainer = opened(
        artifacts, prefix=prefix, checkpoint=checkpoint, device=device, engine=engine, seed=seed
    )
    batches = Batches(_arrays(data, trainer), size=batch_size, seed=trainer.seed)
    held_out = None
    if validation is not None:
        held_out = Batches(_arrays(validation, trainer), size=batch_size, shuffle=False)
    with Log(log_dir) as log:
        history = trainer.fit(
            batches,
            epochs=epochs,
            learning_rate=learning_rate,
            warmup_steps=warmup_steps,
            decay=decay_steps or decay,
            gradient_accumulation=gradient_accumulation,
            validation=held_out,
            eval_every=eval_every,
            checkpoint_every=checkpoint_every,
            on_step=log.step,
            on_evaluation=log.evaluation,
        )
    if not history.losses:
        return
    if checkpoint_every is None:
        trainer.save()
    measures = history.evaluations[-1][1] if history.evaluations else {}
    validated = f" Validation: {in_words(measures)}." if measures else ""
    console.print(
        f"Step {trainer.step}: loss {history.losses[-1]:.4g}.{validated} The last checkpoint is in "
        f"{artifacts / CHECKPOINTS}."
    )


@app.command()
def evaluate(
    artifacts: Artifacts,
    data: Data,
    batch_size: BatchSize = 32,
    checkpoint: Start = None,
    prefix: Prefix = "",
    device: Device = "cpu",
    engine: Engine = None,
) -> None:
    """Print the mean loss over some data."""
    trainer = _trained(artifacts, checkpoint, prefix, device, engine)
    batches = Batches(_arrays(data, trainer), size=batch_size, shuffle=False)
    console.print(f"Step {trainer.step}: {in_words(trainer.evaluate(batches))}")


@app.command()
def export(
    artifacts: Artifacts,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .onnx file to write.")],
    output_names: Annotated[
        list[str] | None,
        typer.Option(
            "--output-name",
            "--output-names",
            help="A tensor that the model puts out; may be given several times. By default what "
            "the evaluation model, or else the training model, puts out after the loss.",
        ),
    ] = None,
    checkpoint: Start = None,
    prefix: Prefix = "",
    engine: Engine = None,
) -> None:
    """Write the trained model for inference."""
    trainer = _trained(artifacts, checkpoint, prefix, "cpu", engine)
    module = trainer.module
    names = output_names or (module.eval().output_names() or module.train().output_names())[1:]
    if not names:
        raise ArtifactError(
            "The model puts out nothing but the loss: name the tensors that the model "
            "is to put out with --output-name; `blockdsl info` of the forward model lists them."
        )
    trainer.export(output, names)
    console.print(f"Wrote {output}, which puts out {', '.join(names)}.")


def _trained(
    artifacts: Path, checkpoint: Path | None, prefix: str, device: str, engine: str | None
) -> Trainer:
    """The trainer of the last checkpoint, or of the artifacts' own if training wrote none."""
    start = checkpoint or latest_checkpoint(artifacts, prefix)
    if start is None and (set_aside := newest_checkpoint(artifacts, prefix)):
        warnings.warn(
            f"The checkpoints in {artifacts / CHECKPOINTS}, {set_aside.name} the last of them, "
            f"were written before the artifacts in {artifacts} were generated again, and are set "
            f"aside: the artifacts' own checkpoint is used, which training has not written. For "
            f"the other one write --checkpoint {set_aside}.",
            BlockWarning,
            stacklevel=2,
        )
    return Trainer(artifacts, prefix=prefix, checkpoint=start, device=device, engine=engine)


def _arrays(path: Path, trainer: Trainer) -> dict[str, Any]:
    """The arrays of an .npz file that the model takes."""
    names = trainer.module.input_names()
    hint = f"Write one with numpy.savez(path, {', '.join(f'{name}=...' for name in names)})."
    try:
        with path.open("rb") as stream:
            file = np.load(stream)
            alone = not isinstance(file, np.lib.npyio.NpzFile)
            known = [] if alone else list(file)
            found = {name: file[name] for name in names if name in known}
    except FileNotFoundError as error:
        raise DataError(f"The file {str(path)!r} does not exist.") from error
    except (OSError, EOFError, ValueError, BadZipFile) as error:
        raise DataError(f"{str(path)!r} is not an .npz file of plain arrays. {hint}") from error
    if alone:
        raise DataError(f"{str(path)!r} holds a single array without a name. {hint}")
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(
            f"{str(path)!r} has {', '.join(known) or 'nothing'} but not {', '.join(missing)}, "
            f"which the model takes. {hint}"
        )
    return found
