"""Where a trainer's checkpoints are, and what they remember of where training is."""

from __future__ import annotations

import glob
import shutil
from contextlib import suppress
from pathlib import Path

from blockdsl.api import CheckpointState
from blockdsl.backend.files import StrPath

CHECKPOINTS = "checkpoints"
"""The folder in a directory of artifacts that checkpoints go to."""

PEAK = "learning_rate"
"""The property that keeps the highest learning rate of a schedule."""

FIRST_EPOCH, FIRST_STEP = "first_epoch", "first_step"
"""The properties that keep the epochs and optimizer steps done before the present run."""

SEED = "seed"
"""The property that keeps what the masks of dropout follow from."""


def checkpoint_name(step: int, prefix: str = "") -> str:
    """The name of the checkpoint of a step.

    Example:
        >>> checkpoint_name(12, "small-")
        'small-step-00000012'
    """
    return f"{prefix}step-{step:08d}"


def latest_checkpoint(artifacts: StrPath, prefix: str = "") -> Path | None:
    """The checkpoint that `Trainer.fit` wrote last, None if there is none.

    Not the one of the highest step: that may be left from a longer run before this one.
    """
    found = [
        path
        for path in (Path(artifacts) / CHECKPOINTS).glob(f"{glob.escape(prefix)}step-*")
        if path.name.removeprefix(f"{prefix}step-").isdigit()
    ]
    return max(found, key=lambda path: (path.stat().st_mtime_ns, path.name), default=None)


def remove_leftovers(checkpoint: Path) -> None:
    """Remove what processes that died while they wrote this very checkpoint have left beside it.

    A resumed run writes the checkpoint again in which it was cut off: nothing stays for long.
    """
    for path in checkpoint.parent.glob(f".{glob.escape(checkpoint.name)}.*"):
        with suppress(OSError):  # it does no harm
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def kept(state: CheckpointState, what: str) -> int:
    """What a checkpoint tells of epochs, of batches of the present one, or its seed; at first 0."""
    return int(state.properties[what]) if what in state.properties else 0
