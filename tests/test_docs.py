"""Every ``python`` block of the README and of the pages runs, in the order of its page."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "docs/tour.md",
    "docs/guides/add_an_op.md",
    "docs/guides/add_an_optimizer.md",
    "docs/guides/debug_a_graph.md",
    "docs/guides/moving_from_onnxblock.md",
]


def program(page: str) -> str:
    """The page as a Python file: its code at the same line numbers, all else left blank."""
    inside, lines = False, []
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines)


@pytest.mark.parametrize("page", PAGES)
def test_page_runs(page, tmp_path):
    code = tmp_path / Path(page).with_suffix(".py").name
    code.write_text(program(page), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, code.name],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def test_no_block_is_indented():
    # What is inside a list would not run.
    for page in PAGES:
        assert not re.search(r"^ +```", (ROOT / page).read_text("utf-8"), re.MULTILINE), page


def test_every_page_with_code_is_listed():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    with_code = {
        page.relative_to(ROOT).as_posix()
        for page in pages
        if re.search(r"^ *```python", page.read_text("utf-8"), re.MULTILINE)
    }
    assert with_code == set(PAGES)


def test_links_lead_to_files_where_the_pages_are_read_unbuilt():
    # GitHub shows the pages that the README leads to as they are: it has links, not roles.
    for page in PAGES:
        text = (ROOT / page).read_text("utf-8")
        assert "{doc}" not in text, page
        links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
        missing = [link for link in links if not (ROOT / page).parent.joinpath(link).exists()]
        assert not missing, (page, missing)
