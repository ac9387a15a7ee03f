"""Artifacts are written beside their directory's files and take their places together."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from blockdsl.errors import ArtifactError, BlockError

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A folder to write to, whose files move to the directory together when all are there."""
    folder: Path | None = None
    try:
        target.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".blockdsl-", dir=target))
        yield folder
        for file in sorted(folder.iterdir()):
            final = target / file.name
            if final.is_dir() and not final.is_symlink():
                _remove_old_checkpoint(final)
            file.replace(final)
            _log.info("Wrote %s", final)
    except OSError as error:
        if isinstance(error, BlockError):
            raise
        raise ArtifactError(
            f"The artifacts cannot be written to {os.fspath(target)!r}: {error.strerror or error}."
        ) from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_old_checkpoint(folder: Path) -> None:
    """Remove what releases before 1.15 of onnxruntime-training wrote as a checkpoint: a folder.

    Raises:
        ArtifactError: It is some other folder.
    """
    if not folder.name.endswith("checkpoint") or any(item.is_dir() for item in folder.iterdir()):
        raise ArtifactError(
            f"{os.fspath(folder)!r} is a folder and stands in the way of an artifact of that name. "
            f"Remove it, or choose another artifact_directory or prefix."
        )
    shutil.rmtree(folder)
