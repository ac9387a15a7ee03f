"""Checkpoint files on the disk are the old ones or the new ones, at every moment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from blockdsl.backend.checkpoint import Checkpoint, OptimizerGroup, dumps, load, save
from blockdsl.errors import CheckpointError, CheckpointNotFoundError

INLINE, EXTERNAL = 10**9, 0  # values of external_data_threshold


def checkpoint(version: int, size: int = 100) -> Checkpoint:
    """All of it has the same number in it, so that a mixture of two cannot hide."""
    slots = {"w": {"momentum0": np.full(size, version, np.float32)}}
    return Checkpoint(
        {"w": np.full(size, version, np.float32)},
        {"f": np.full(size, version)},
        groups={"group0": OptimizerGroup("group0", version, slots=slots)},
        properties={"version": version},
    )


def version(path: Path) -> int:
    """The number in a checkpoint that is all of one piece."""
    loaded = load(path)
    number = loaded.properties["version"]
    assert isinstance(number, int)
    assert dumps(loaded) == dumps(checkpoint(number, loaded.trainable["w"].size))
    return number


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


STEPS = [(INLINE, INLINE), (INLINE, EXTERNAL), (EXTERNAL, EXTERNAL), (EXTERNAL, INLINE)]
IDS = ["inline", "inline to external", "external", "external to inline"]


@pytest.mark.parametrize(("before", "after"), STEPS, ids=IDS)
def test_a_crash_at_any_moment(
    before: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run" / "c"
    path.parent.mkdir()
    seen = []

    def crash_here(original: Callable[..., object]) -> Callable[..., object]:
        """What the disk would hold if the process died just before or just after this call."""

        def call(*args: object, **kwargs: object) -> object:
            for moment in (lambda: None, lambda: original(*args, **kwargs)):
                result = moment()
                copy = shutil.copytree(path.parent, tmp_path / str(len(seen)))
                seen.append(version(copy / "c"))
            return result

        return call

    save(checkpoint(1), path, external_data_threshold=before)
    with monkeypatch.context() as patched:
        for owner, function in [
            (os, "fsync"), (os, "truncate"), (Path, "replace"), (Path, "touch"), (Path, "unlink")
        ]:  # fmt: skip
            patched.setattr(owner, function, crash_here(getattr(owner, function)))
        save(checkpoint(2), path, external_data_threshold=after)
    assert seen == sorted(seen)
    assert {1, 2} == set(seen)
    assert names(path.parent) == (["c", "c.data"] if after == EXTERNAL else ["c"])


@pytest.mark.parametrize(("before", "after"), STEPS, ids=IDS)
@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write(
    before: int, after: int, failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c"
    save(checkpoint(1), path, external_data_threshold=before)
    files = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}

    def fail(*args: object, **kwargs: object) -> object:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os if failing == "fsync" else Path, failing, fail)
        with pytest.raises(CheckpointError, match=r"No space left on device. The old one is"):
            save(checkpoint(2), path, external_data_threshold=after)
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == files


@pytest.mark.parametrize("threshold", [INLINE, EXTERNAL])
def test_a_full_disk(threshold: int, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="limits on file sizes are POSIX's")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    save(checkpoint(1), tmp_path / "c", external_data_threshold=threshold)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        with pytest.raises(CheckpointError, match=r"File too large. The old one is unchanged"):
            save(checkpoint(2, 10**5), tmp_path / "c", external_data_threshold=threshold)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert version(tmp_path / "c") == 1
    assert names(tmp_path) == (["c", "c.data"] if threshold == EXTERNAL else ["c"])


KILLED = """
import sys
sys.path[:0] = [sys.argv[1]]
from test_checkpoint_files import checkpoint, save
for version in range(1, 10**9):
    save(checkpoint(version, 10**5), sys.argv[2], external_data_threshold=int(sys.argv[3]))
    print(version, flush=True)
"""


@pytest.mark.parametrize("threshold", [INLINE, EXTERNAL])
def test_a_killed_process(threshold: int, tmp_path: Path) -> None:
    path = tmp_path / "c"
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(path), str(threshold)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(5):
            process.stdout.readline()
        process.kill()
        saved = [int(line) for line in process.stdout] or [5]
    assert saved[-1] <= version(path) <= saved[-1] + 1


def test_external_data_are_never_written_over_those_in_use(tmp_path: Path) -> None:
    path = tmp_path / "c"
    ends = []
    for number, size in enumerate([1000, 1000, 1000, 500, 2000, 2000, 100], 1):
        save(checkpoint(number, size), path, external_data_threshold=EXTERNAL)
        assert version(path) == number
        ends.append((tmp_path / "c.data").stat().st_size / 16)  # 16 bytes for each of `size`
    # After the old ones where they do not fit before them; what then lies behind is cut off.
    assert ends == [1000, 2000, 1000, 1500, 3500, 5500, 100]


def test_small_tensors_stay_in_the_checkpoint(tmp_path: Path) -> None:
    save(checkpoint(1, size=3), tmp_path / "c", external_data_threshold=EXTERNAL)
    assert names(tmp_path) == ["c"]


def test_a_file_that_only_has_the_name_of_external_data_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "c.data").write_text("mine")
    save(checkpoint(1), tmp_path / "c")
    save(checkpoint(2), tmp_path / "c")
    assert (tmp_path / "c.data").read_text() == "mine"


@pytest.mark.parametrize("threshold", [INLINE, EXTERNAL])
def test_a_link_stays_a_link(threshold: int, tmp_path: Path) -> None:
    link = tmp_path / "latest"
    try:
        link.symlink_to("c")
    except OSError:
        pytest.skip("this system lets nobody make links")
    for number in (1, 2):
        save(checkpoint(number), link, external_data_threshold=threshold)
        assert link.is_symlink()
        assert version(link) == number


def test_damaged_checkpoints_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "c"
    save(checkpoint(1), path, external_data_threshold=EXTERNAL)
    path.write_bytes(path.read_bytes()[:50])
    save(checkpoint(2), path, external_data_threshold=EXTERNAL)
    assert version(path) == 2


def test_external_data_that_are_not_there(tmp_path: Path) -> None:
    save(checkpoint(1), tmp_path / "c", external_data_threshold=EXTERNAL)
    data = tmp_path / "c.data"
    os.truncate(data, 500)
    with pytest.raises(CheckpointError, match=r"it needs .* bytes of '.*c.data', which has 500"):
        load(tmp_path / "c")
    data.unlink()
    with pytest.raises(CheckpointNotFoundError, match=r"'.*c.data' is missing. It holds the ten"):
        load(tmp_path / "c")


def test_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckpointNotFoundError, match=r"its folder does not exist. Create it fir"):
        save(checkpoint(1), tmp_path / "no" / "c")
    with pytest.raises(CheckpointError, match=r"'.*': it is a folder"):
        save(checkpoint(1), tmp_path)

    def refuse(*args: object, **kwargs: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "touch", refuse)  # root, who runs many a test, may write anywhere
    with pytest.raises(CheckpointError, match=r"Cannot write .*c': Permission denied\.$"):
        save(checkpoint(1), tmp_path / "c")
    assert names(tmp_path) == []
