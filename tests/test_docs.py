"""Every page is one story: its ``python`` blocks and ``blockdsl`` commands run in its order."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from sklearn.datasets import load_digits

import blockdsl

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "docs/tour.md",
    "docs/guides/add_an_op.md",
    "docs/guides/add_an_optimizer.md",
    "docs/guides/debug_a_graph.md",
    "docs/guides/moving_from_onnxblock.md",
    "docs/reference/cli.md",
]


COMMAND = "import subprocess, sys; subprocess.run([sys.executable, '-m', *{!r}], check=True)"


def program(page: str) -> str:
    """The page as a Python file: its code at the same line numbers, all else left blank.

    A line of a ``sh`` block that begins with ``blockdsl`` runs that command.
    """
    block, lines = "", []
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            block = "" if block else line[3:]
            lines.append("")
        elif block == "sh" and line.startswith("blockdsl "):
            lines.append(COMMAND.format(shlex.split(line)))
        else:
            lines.append(line if block == "python" else "")
    return "\n".join(lines)


def follow(page, folder, engine):
    """Run a page in an empty folder; its output."""
    code = folder / Path(page).with_suffix(".py").name
    code.write_text(program(page), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "BLOCKDSL_ENGINE": engine}
    done = subprocess.run(
        [sys.executable, code.name],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", sorted({*PAGES} - {"README.md"}))
def test_page_runs(page, tmp_path, engine):
    follow(page, tmp_path, engine)


def test_the_story_of_the_readme(tmp_path, engine):
    """What is exported is what was trained last, from Python and from the shell.

    The export used to be of the loop's weights, which were older than the Trainer's, and the
    commands needed files that nothing had written.
    """
    shown = follow("README.md", tmp_path, engine)
    (accuracy,) = (float(line) for line in shown.splitlines() if re.fullmatch(r"[01]\.\d+", line))
    assert accuracy > 0.9
    images, labels = load_digits(return_X_y=True)
    shuffled = np.random.default_rng(0).permutation(len(images))[1500:]
    x, labels = (images[shuffled] / 16).astype(np.float32), labels[shuffled]
    for artifacts, exported in (("artifacts", "digits.onnx"), ("run", "trained.onnx")):
        trained = blockdsl.Trainer.resume(tmp_path / artifacts, engine=engine)
        session = onnxruntime.InferenceSession(
            tmp_path / exported, providers=["CPUExecutionProvider"]
        )
        (logits,) = session.run(None, {"x": x})
        trained.export(tmp_path / "again.onnx", [session.get_outputs()[0].name])
        again = onnxruntime.InferenceSession(
            tmp_path / "again.onnx", providers=["CPUExecutionProvider"]
        )
        np.testing.assert_array_equal(logits, again.run(None, {"x": x})[0])
        assert (logits.argmax(axis=1) == labels).mean() > 0.9


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


def test_code_that_needs_pytorch_is_python():
    # The suite runs without PyTorch: such blocks are marked `py`, and are compiled alone.
    page = ROOT / "docs/guides/export_from_pytorch.md"
    blocks = re.findall(r"^```py\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        compile(block, page.name, "exec")
