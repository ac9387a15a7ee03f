"""Checkpoints that cannot be read, and states that are none."""

import pathlib

from onnxruntime.training.api import CheckpointState

from tests.upstream.models import error_of

pathlib.Path("junk").write_bytes(b"no checkpoint at all, only text" * 9)
results = {
    "state": error_of(lambda: CheckpointState(5)),
    "missing": error_of(lambda: CheckpointState.load_checkpoint("missing")),
    "junk": error_of(
        lambda: CheckpointState.load_checkpoint("junk"), "Checkpoint verification failed"
    ),
    "no path": error_of(lambda: CheckpointState.load_checkpoint(5)),
}
