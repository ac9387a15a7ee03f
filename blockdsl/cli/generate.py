"""`blockdsl generate`: from a forward model to the artifacts that train it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from blockdsl.artifacts import LossType, OptimType, generate_artifacts, summary
from blockdsl.cli.app import app, console
from blockdsl.cli.blocks import block_of
from blockdsl.errors import ArtifactError

LOSSES = {
    "mse": LossType.MSELoss,
    "cross-entropy": LossType.CrossEntropyLoss,
    "bce": LossType.BCEWithLogitsLoss,
    "l1": LossType.L1Loss,
}
OPTIMIZERS = {"adamw": OptimType.AdamW, "sgd": OptimType.SGD}


@app.command()
def generate(
    model: Annotated[Path, typer.Argument(help="The forward model, an .onnx file.")],
    loss: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(LOSSES)}; none if the model's first output is the loss; or a block "
            "with its arguments, also of your own: my_losses:Focal(gamma=2)."
        ),
    ],
    optimizer: Annotated[
        str,
        typer.Option(help=f"{', '.join(OPTIMIZERS)}, none, or blockdsl.optim:SGD(momentum=0.9)."),
    ] = "adamw",
    output: Annotated[Path, typer.Option(help="The directory to write to.")] = Path("artifacts"),
    train: Annotated[
        list[str] | None,
        typer.Option(
            help="A parameter, or a glob of them, that is trained; may be given several times. "
            "By default all that the loss depends on."
        ),
    ] = None,
    freeze: Annotated[
        list[str] | None,
        typer.Option(help="A parameter, or a glob of them, that is kept as it is."),
    ] = None,
    loss_input: Annotated[
        list[str] | None,
        typer.Option(help="A tensor that the loss takes, if not the outputs of the model."),
    ] = None,
    output_name: Annotated[
        list[str] | None,
        typer.Option(help="A tensor that the models put out after the loss."),
    ] = None,
    prefix: Annotated[str, typer.Option(help="What the names of the files begin with.")] = "",
    nominal: Annotated[
        bool, typer.Option("--nominal", help="Write a checkpoint without the values, too.")
    ] = False,
    ort: Annotated[bool, typer.Option("--ort", help="Write .ort files, too.")] = False,
    custom_op_library: Annotated[
        Path | None, typer.Option(help="The library of the model's custom operators.")
    ] = None,
    separate_merged: Annotated[
        list[str] | None,
        typer.Option(
            help="A weight, or a glob, that the exporter merged of equal ones and that is to be "
            "separate; all for every one that `blockdsl check` finds."
        ),
    ] = None,
    tie: Annotated[
        list[str] | None,
        typer.Option(
            help="Two weights that are to be one, as FIRST,SECOND; all for every pair that "
            "`blockdsl check` finds."
        ),
    ] = None,
) -> None:
    """Write what trains MODEL: training, evaluation and optimizer models and a checkpoint."""
    with _printed_summary():
        generate_artifacts(
            model,
            requires_grad=train,
            frozen_params=freeze,
            loss=block_of(loss, LOSSES, "--loss"),
            optimizer=block_of(optimizer, OPTIMIZERS, "--optimizer"),
            artifact_directory=output,
            prefix=prefix,
            ort_format=ort,
            custom_op_library=custom_op_library,
            additional_output_names=output_name,
            nominal_checkpoint=nominal,
            loss_input_names=loss_input,
            separate_merged=separate_merged == ["all"] or separate_merged or False,
            tie=tie == ["all"] or [_pair(text) for text in tie or ()],
        )
    console.print(f"Wrote the artifacts to {output}. Look at them: blockdsl info {output}")


class _Printer(logging.Handler):
    """Prints log records like other output of a command."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        console.print(record.getMessage(), markup=False)


@contextmanager
def _printed_summary() -> Iterator[None]:
    """Print the line about what is trained."""
    log, printer = logging.getLogger(summary.__name__), _Printer()
    level = log.level
    log.addHandler(printer)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(printer)
        log.setLevel(level)


def _pair(text: str) -> tuple[str, str]:
    """Return the two names of a `--tie` option."""
    first, comma, second = text.partition(",")
    if not (first and comma and second):
        raise ArtifactError(f"--tie must be all or two names, FIRST,SECOND; got {text!r}.")
    return first, second
