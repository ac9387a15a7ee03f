"""Processes that are killed while they train (SIGKILL), and runs that go on as if they had not.

`--hypothesis-profile nightly` kills each run 50 times, at other moments every night.
"""

import json
import os
import secrets
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from blockdsl.backend.checkpoint import GROUP, load
from tests.killed.child import OPTIMIZERS, STEPS_PER_EPOCH, Life, digest, write_artifacts

ROOT = Path(__file__).parents[1]
MOMENTS = ["after a step", "when a save begins", "inside a save"]
AHEAD = b".."
"""How many lines a process may be ahead of what was read: where it is killed is left to chance."""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it has no SIGKILL")


@dataclass
class Told:
    """What processes have told.

    Attributes:
        steps: Loss and learning rate of every step, by its number.
        evaluations: The loss of every evaluation, by the step.
        saves: What every checkpoint holds, by the step.
        lines: How many lines of Python a save has at most.
    """

    steps: dict[int, str] = field(default_factory=dict)
    evaluations: dict[int, str] = field(default_factory=dict)
    saves: dict[int, str] = field(default_factory=dict)
    lines: int = 0

    def hear(self, word: str, number: str, rest: list[str]) -> None:
        """Take in a line; a step that is taken again is the same again."""
        if word == "saved":
            self.lines = max(self.lines, int(rest.pop()))
        known = {"step": self.steps, "evaluated": self.evaluations, "saved": self.saves}.get(word)
        if known is not None:
            assert known.setdefault(int(number), " ".join(rest)) == " ".join(rest)


def live(life: Life, told: Told, dies_at: tuple[str, int] | None = None) -> bool:
    """A process's life, until it is done or has told so many lines of a kind; whether it died."""
    command = [sys.executable, "-m", "tests.killed.child", json.dumps(asdict(life))]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    left = None if dies_at is None else dies_at[1]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes) as process:
        os.write(process.stdin.fileno(), AHEAD)
        for line in process.stdout:
            word, number, *rest = line.split()
            told.hear(word, number, rest)
            if dies_at is not None and word == dies_at[0]:
                left -= 1
                if left <= 0:
                    process.kill()
            with suppress(BrokenPipeError):
                os.write(process.stdin.fileno(), b".")
        errors = process.stderr.read()
    assert process.returncode in (0, -9), errors
    return process.returncode == -9


def contents(folder: Path) -> dict[int, str]:
    """What the checkpoints of a folder hold, by their steps: every one of them can be read."""
    paths = (folder / "checkpoints").glob("[!.]*")
    found = [path for path in paths if path.suffix != ".data"]
    return {load(path).groups[GROUP].step: digest(path) for path in found}


@pytest.fixture
def kills(request):
    nightly = request.config.getoption("--hypothesis-profile") == "nightly"
    return 50 if nightly else 3


@pytest.fixture
def moments(request, rng):
    nightly = request.config.getoption("--hypothesis-profile") == "nightly"
    seed = secrets.randbits(32) if nightly else int(rng.integers(2**32))
    print(f"the moments follow from {seed}")
    return np.random.default_rng(seed)


@pytest.mark.parametrize("form", OPTIMIZERS)
def test_a_run_that_is_killed_is_bit_for_bit_the_whole_run(tmp_path, engine, form, kills, moments):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()
        write_artifacts(folder, form)
    epochs = -(-kills * 10 // STEPS_PER_EPOCH)  # no life is longer than 10 steps
    life = Life(str(whole), engine, form, epochs)
    expected, told = Told(), Told()
    assert not live(life, expected)
    assert contents(whole).items() <= expected.saves.items()

    life = replace(life, folder=str(broken))
    for i in range(kills):
        moment = MOMENTS[i % len(MOMENTS)]
        if moment == "after a step":
            died = live(life, told, ("step", int(moments.integers(1, 9))))
        elif moment == "when a save begins":
            died = live(life, told, ("saving", int(moments.integers(1, 5))))
        else:
            save, lines = int(moments.integers(1, 5)), int(moments.integers(1, expected.lines))
            died = live(replace(life, dies_in_save=save, after_lines=lines), told)
        assert died, "the run ended before all kills were done"
        assert contents(broken).items() <= expected.saves.items()
    assert not live(life, told)

    assert told.steps == expected.steps
    assert told.evaluations == expected.evaluations
    assert told.saves.items() <= expected.saves.items()
    assert contents(broken) == contents(whole)
    # Nothing is left of the saves that were cut off.
    assert sorted(os.listdir(broken / "checkpoints")) == sorted(os.listdir(whole / "checkpoints"))
