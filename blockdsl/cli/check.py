"""`blockdsl check`: a look at a forward model for training."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from blockdsl.artifacts import Report, inspect
from blockdsl.cli.app import app, console


@app.command()
def check(
    model: Annotated[Path, typer.Argument(help="The forward model, an .onnx file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look MODEL over for training; exit with 1 if other values would be trained than exported."""
    report = inspect(model)
    if as_json:
        typer.echo(json.dumps(_as_dict(model, report), indent=2))
    else:
        _print_report(model, report)
    if report.changes_training or not report.would_train:
        raise typer.Exit(1)


def _as_dict(model: Path, report: Report) -> dict[str, object]:
    return {
        "model": str(model),
        "would_train": report.would_train,
        "changes_training": report.changes_training,
        "summary": report.summary,
        "trained": report.trained,
        "findings": [dataclasses.asdict(finding) for finding in report],
    }


def _print_report(model: Path, report: Report) -> None:
    verdict = "would train" if report.would_train else "would not train"
    console.print(f"{model} {verdict}: {report.summary}", markup=False)
    if not report.findings:
        console.print("Nothing found.")
        return
    table = Table(box=box.SIMPLE_HEAD, show_lines=True)
    for title in ("finding", "what", "what to write"):
        table.add_column(title, overflow="fold")
    for finding in report:
        style = "red" if finding.changes_training else "yellow"
        kind = Text(finding.kind, style=style)
        table.add_row(kind, Text(finding.message), Text(finding.fix))
    console.print(table)
    if report.changes_training:
        console.print("Red: changes what is trained, or how.")
