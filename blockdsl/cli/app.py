"""The application that the commands are added to, and how mistakes are told."""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from blockdsl import __version__
from blockdsl.errors import BlockError

console = Console(highlight=False, soft_wrap=True)


class _Commands(TyperGroup):
    """Commands whose errors are a line of text, unless `--debug` asks for the traceback."""

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except BlockError as error:
                if ctx.params.get("debug"):
                    raise
                _print_line(error, "red")
                raise typer.Exit(1) from error


def _show_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    _print_line(message, "yellow")


def _print_line(message: object, colour: str) -> None:
    # A console of its own: the stream of errors may have been replaced since the import.
    Console(stderr=True, soft_wrap=True, highlight=False).print(
        " ".join(str(message).split()), style=colour, markup=False
    )


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train ONNX models on any ONNX Runtime.",
)


def _print_version(asked: bool) -> None:
    if asked:
        console.print(f"blockdsl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options before the command."""
