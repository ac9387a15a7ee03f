"""Curves for TensorBoard."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from blockdsl.errors import BlockError


class Log:
    """Writes training losses and evaluations; nothing without a directory.

    Args:
        directory: Where TensorBoard looks.

    Raises:
        BlockError: tensorboardX is not installed, or the directory is none or cannot be made.
    """

    def __init__(self, directory: Path | None) -> None:
        self._writer: Any = None
        if directory is None:
            return
        try:
            package = importlib.import_module("tensorboardX")
        except ImportError as error:
            raise BlockError(
                "--log-dir needs tensorboardX: `pip install 'blockdsl[tensorboard]'`."
            ) from error
        try:
            self._writer = package.SummaryWriter(str(directory))
        except OSError as error:
            raise BlockError(
                f"Nothing can be written to {str(directory)!r}: {error.strerror}."
            ) from error

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._writer is not None:
            self._writer.close()

    def step(self, step: int, loss: float) -> None:
        """Write the loss of a step."""
        if self._writer is not None:
            self._writer.add_scalar("loss/train", loss, step)

    def evaluation(self, step: int, measures: Mapping[str, float]) -> None:
        """Write what an evaluation measured."""
        if self._writer is not None:
            for name, value in measures.items():
                self._writer.add_scalar(f"{name}/validation", value, step)
