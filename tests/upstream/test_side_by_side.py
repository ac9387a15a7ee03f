"""Programs in onnxruntime-training's words give what they give there, after three import swaps."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import pytest

from tests.upstream.runner import PYTHON, SCRIPTS, ask_theirs, recorded, run, swapped

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = Path(__file__).with_name("differences.toml")
DIFFERENCES = {
    (row["script"], row["result"]): row["reason"]
    for row in tomllib.loads(TABLE.read_text("utf-8"))["difference"]
}


def agrees(theirs, ours) -> bool:
    """Whether blockdsl's result is onnxruntime-training's.

    Numbers agree to float32's accuracy over a few steps. An error agrees if it is of the built-in
    class that is raised there and has the same of the texts that the script looks for.
    """
    if isinstance(theirs, dict) and "raises" in theirs:
        raised = theirs["raises"][:1]
        return (
            isinstance(ours, dict)
            and bool(raised) == bool(ours.get("raises"))
            and all(kind in ours["raises"] for kind in raised)
            and theirs.get("says") == ours.get("says")
        )
    if isinstance(theirs, float) and isinstance(ours, int | float):
        return math.isclose(theirs, ours, rel_tol=1e-4, abs_tol=1e-5)
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return theirs.keys() == ours.keys() and all(agrees(theirs[k], ours[k]) for k in theirs)
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(theirs) == len(ours) and all(map(agrees, theirs, ours))
    return type(theirs) is type(ours) and theirs == ours


@pytest.mark.filterwarnings("default::blockdsl.errors.BlockWarning")  # a warning differs in nothing
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_after_three_swaps(script, engine, tmp_path, monkeypatch):
    monkeypatch.setenv("BLOCKDSL_ENGINE", engine)
    theirs = recorded()[script.stem]
    ours = run(script, tmp_path, swapped(script.read_text("utf-8")))
    assert ours.keys() == theirs.keys()
    for key, expected in theirs.items():
        if (script.stem, key) in DIFFERENCES:
            assert not agrees(expected, ours[key]), f"{key} is listed as a difference"
        else:
            assert agrees(expected, ours[key]), f"{key}: {expected} there, {ours[key]} here"


def test_every_difference_is_of_a_script():
    known = {(name, key) for name, results in recorded().items() for key in results}
    assert DIFFERENCES.keys() <= known
    assert all(DIFFERENCES.values())


def test_every_script_is_recorded():
    assert sorted(recorded()) == [script.stem for script in SCRIPTS]


@pytest.fixture(scope="module")
def fresh():
    if PYTHON not in os.environ:
        pytest.skip(f"{PYTHON} names no Python that has onnxruntime-training and PyTorch")
    return ask_theirs()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_record_is_what_onnxruntime_training_gives(script, fresh):
    """`python -m tests.upstream.runner` makes it anew."""
    assert agrees(recorded()[script.stem], fresh[script.stem])


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (1.0, 1.1),
        (1, True),
        ("a", "b"),
        ([1.0], [1.0, 2.0]),
        ({"a": 1}, {"b": 1}),
        ({"raises": ["KeyError"]}, {"raises": ["RuntimeError"]}),
        ({"raises": ["KeyError"]}, {"raises": []}),
        ({"raises": []}, {"raises": ["KeyError"]}),
        (
            {"raises": ["KeyError"], "says": {"x": True}},
            {"raises": ["KeyError"], "says": {"x": False}},
        ),
        (float("nan"), 0.0),
    ],
)
def test_what_differs_is_seen(theirs, ours):
    assert agrees(theirs, theirs) or theirs != theirs
    assert not agrees(theirs, ours)
