"""Where a trainer's checkpoints are, and what they remember of where training is."""

from __future__ import annotations

import glob
import os
import shutil
from contextlib import suppress
from pathlib import Path

from blockdsl.api import CheckpointState
from blockdsl.backend import checkpoint as codec
from blockdsl.backend.files import StrPath, read_model
from blockdsl.backend.identity import identity_of, same_artifacts, same_content
from blockdsl.errors import CheckpointError

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
    """Return the checkpoint of these artifacts that `Trainer.fit` wrote last, None without one.

    Checkpoints of artifacts that were generated in the folder before are passed over. It is not the
    checkpoint of the highest step: that may be left from a longer run before this one.
    """
    identity = artifacts_of(artifacts, prefix)
    return next((p for p in _newest(artifacts, prefix) if _belongs(p, identity)), None)


def newest_checkpoint(artifacts: StrPath, prefix: str = "") -> Path | None:
    """Return the checkpoint in a folder of artifacts that was written last, whosever it is."""
    return next(iter(_newest(artifacts, prefix)), None)


def nothing_to_resume(artifacts: StrPath, prefix: str = "") -> str:
    """Say why a folder of artifacts has no checkpoint of theirs, and what to write."""
    folder, last = Path(artifacts) / CHECKPOINTS, newest_checkpoint(artifacts, prefix)
    if last is None:
        return (
            f"There is no checkpoint in {os.fspath(folder)!r}: train with checkpoint_every, or "
            f"name the checkpoint to resume from."
        )
    place, path = repr(os.fspath(artifacts)), repr(os.fspath(last))
    if same_content(artifacts_of_checkpoint(last), artifacts_of(artifacts, prefix)):
        other = (
            f"finish their run all the same, Trainer.resume({place}, {path}) (`blockdsl train "
            f"--checkpoint`)"
        )
    else:
        other = f"begin with what they have trained, Trainer({place}, checkpoint={path})"
    return (
        f"The checkpoints in {os.fspath(folder)!r}, {last.name} the last of them, were written "
        f"before the artifacts in {place} were generated again, and are set aside. To train the "
        f"new artifacts, write Trainer({place}) (`blockdsl train` without --resume); to {other}."
    )


def check_resumable(artifacts: StrPath, prefix: str, checkpoint: StrPath) -> None:
    """Check that a checkpoint belongs to the content of the artifacts.

    Raises:
        CheckpointError: It belongs to others.
    """
    if not same_content(artifacts_of_checkpoint(checkpoint), artifacts_of(artifacts, prefix)):
        place, path = repr(os.fspath(artifacts)), repr(os.fspath(checkpoint))
        raise CheckpointError(
            f"The checkpoint {path} belongs to other artifacts than those in {place}: to those of "
            f"another model, or of other settings. A run is resumed with its own artifacts. To "
            f"begin a run with the parameters of the checkpoint, write Trainer({place}, "
            f"checkpoint={path})."
        )


def artifacts_of(artifacts: StrPath, prefix: str = "") -> str:
    """Return the identity of the artifacts in a folder, "" if it is not known."""
    model = Path(artifacts) / f"{prefix}training_model.onnx"
    return identity_of(read_model(model, weights=False)) if model.is_file() else ""


def artifacts_of_checkpoint(path: StrPath) -> str:
    """Return the identity of the artifacts that a checkpoint belongs to, "" if it is not known."""
    return codec.load(path, mapped=True).artifacts


def _newest(artifacts: StrPath, prefix: str) -> list[Path]:
    """Return the checkpoints of a folder of artifacts, those written last first."""
    found = [
        path
        for path in (Path(artifacts) / CHECKPOINTS).glob(f"{glob.escape(prefix)}step-*")
        if path.name.removeprefix(f"{prefix}step-").isdigit()
    ]
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name), reverse=True)


def _belongs(path: Path, identity: str) -> bool:
    try:
        return same_artifacts(artifacts_of_checkpoint(path), identity)
    except CheckpointError:  # loading it says what is wrong with it
        return True


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
