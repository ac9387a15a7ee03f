"""What a person sees of a training run."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any


class Progress:
    """Shows steps, the loss, the time left and evaluations; nothing when it is not enabled.

    Args:
        enabled: Whether to show anything.
        total: How many steps there will be, 0 if that is not known.
    """

    def __init__(self, *, enabled: bool, total: int) -> None:
        self._bar: Any = None
        if enabled:
            from rich import progress

            self._bar = progress.Progress(
                progress.TextColumn("training"),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TextColumn("loss {task.fields[loss]}"),
                progress.TimeElapsedColumn(),
                progress.TimeRemainingColumn(),
            )
            self._task = self._bar.add_task("training", total=total or None, loss="-")

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, steps: int, loss: float | None = None) -> None:
        """Show that so many more steps are done."""
        if self._bar is not None:
            fields = {} if loss is None else {"loss": f"{loss:.4f}"}
            self._bar.update(self._task, advance=steps, **fields)

    def report(self, step: int, measures: Mapping[str, float]) -> None:
        """Print what an evaluation found, above the bar."""
        if self._bar is not None:
            self._bar.console.print(f"step {step}: {in_words(measures)}", highlight=False)


def in_words(measures: Mapping[str, float]) -> str:
    """Measures on one line.

    Example:
        >>> in_words({"loss": 0.25, "accuracy": 0.975})
        'loss 0.25, accuracy 0.975'
    """
    return ", ".join(f"{name} {value:.4g}" for name, value in measures.items())
