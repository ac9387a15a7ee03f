"""The page of parity says what the two packages say."""

import os

import pytest

from tests.upstream import parity
from tests.upstream.runner import PYTHON, ROOT

REFRESH = "run: python -m tests.upstream.parity docs/reference/parity.md"


def test_the_page_is_fresh():
    page = (ROOT / "docs" / "reference" / "parity.md").read_text("utf-8")
    assert page == parity.page(), REFRESH


def test_the_record_is_what_onnxruntime_training_has():
    if PYTHON not in os.environ:
        pytest.skip(f"{PYTHON} names no Python that has onnxruntime-training and PyTorch")
    assert parity.recorded() == parity.ask_theirs(), REFRESH


def test_what_is_not_the_same_has_a_reason():
    without = [row.name for row in parity.rows() if row.verdict != "same" and not row.reason]
    assert without == [], "give them a row in parity.toml"


def test_better_fits_where_the_old_one_did():
    said = parity.notes()
    assert set(said) <= set(parity.recorded())
    for name, note in said.items():
        fits, _ = parity.compare(parity.recorded()[name], parity.ours(name))
        assert note["verdict"] == "differs" or (note["verdict"] == "better" and fits), name


@pytest.mark.parametrize(
    ("there", "here", "fits"),
    [
        (["a", "b=1"], ["a", "b=1"], True),
        (["a", "b=1"], ["a", "b=1", "c=None"], True),
        (["a", "b=1"], ["a", "b=2"], False),
        (["a"], ["a", "b"], False),
        (["a", "b=1"], ["a"], False),
        (["a"], ["other"], False),
        (["*names"], ["*tensors"], True),
        ("property, can be set", "property", False),
        ("attribute", "property, can be set", True),
        ("attribute", None, False),
    ],
)
def test_what_does_not_fit_is_seen(there, here, fits):
    assert parity.compare(there, here)[0] is fits
