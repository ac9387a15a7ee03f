"""The page of operator coverage says what the rules say."""

import re
from pathlib import Path

import onnx

import blockdsl.gradient  # noqa: F401  the rules register when they are imported
from blockdsl.gradient.coverage import GAPS, coverage, page

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "op_coverage.md"
REFRESH = "run: python -m blockdsl.gradient.coverage docs/reference/op_coverage.md"


def test_the_page_is_fresh():
    text = PAGE.read_text(encoding="utf-8")
    named = re.search(r"operators of ONNX (\d+\.\d+) ", text)
    assert named is not None, REFRESH
    if onnx.__version__.startswith(f"{named[1]}."):
        assert text == page(), REFRESH
    else:  # another onnx knows other operators
        listed = set(re.findall(r"^\| (\S+) \| \d+ \| gap \|", text, re.MULTILINE))
        assert {row.name for row in coverage() if row.kind == "gap"} <= listed


def test_a_gap_has_a_reason():
    assert {row.name for row in coverage() if row.kind == "gap"} <= set(GAPS)


def test_every_operator_is_of_one_kind():
    rows = coverage()
    assert len({row.name for row in rows}) == len(rows)
    assert {row.kind for row in rows} <= {"rule", "body", "none", "gap"}
    assert all(row.how for row in rows)
