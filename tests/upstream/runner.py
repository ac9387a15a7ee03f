"""Runs the scripts, under onnxruntime-training's imports as they stand or under blockdsl's.

    BLOCKDSL_UPSTREAM_PYTHON=... python -m tests.upstream.runner        refreshes the record

A script is written in onnxruntime-training's words and leaves what it found in `results`. Under
blockdsl its three imports are swapped, and nothing else. BLOCKDSL_UPSTREAM_PYTHON is a Python with
onnxruntime-training-cpu 1.19.2, PyTorch, which that imports, and onnx 1.17, the newest that it
knows; nothing of blockdsl is imported there, nor need it be installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(Path(__file__).with_name("scripts").glob("*.py"))
RECORD = ROOT / "tests" / "data" / "upstream_scripts.json"
PYTHON = "BLOCKDSL_UPSTREAM_PYTHON"

SWAPS = {
    "import onnxruntime.training.onnxblock as onnxblock": "import blockdsl as onnxblock",
    "from onnxruntime.training.onnxblock import _graph_utils": "from blockdsl import _graph_utils",
    "from onnxruntime.training import artifacts": "from blockdsl import artifacts",
    "from onnxruntime.training.api import": "from blockdsl.api import",
}


def swapped(source: str) -> str:
    """A script under blockdsl's imports."""
    for theirs, ours in SWAPS.items():
        source = source.replace(theirs, ours)
    if "onnxruntime.training" in source:
        raise ValueError("a script imports more of onnxruntime.training than can be swapped")
    return source


def run(script: Path, folder: str | os.PathLike[str], source: str | None = None) -> dict:
    """The results of a script that runs in an empty folder."""
    code = compile(source or script.read_text("utf-8"), str(script), "exec")
    before = os.getcwd()
    os.chdir(folder)
    try:
        space = {"__name__": script.stem}
        exec(code, space)
    finally:
        os.chdir(before)
    return plain(space["results"])


def plain(value):
    """Results as JSON has them; what is no number, text or array says so by its name."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return {
            "dtype": value.dtype.name,
            "shape": list(value.shape),
            "data": plain(value.ravel().tolist()),
        }
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if value is None or isinstance(value, (bool, int, str)):
        return str(value) if isinstance(value, str) else value
    return type(value).__name__


def run_theirs() -> dict[str, dict]:
    """The results of all scripts under onnxruntime-training's own imports."""
    found = {}
    for script in SCRIPTS:
        with tempfile.TemporaryDirectory() as folder:
            found[script.stem] = run(script, folder)
    return found


def ask(code: str) -> dict:
    """What `answer` is after the code has run where onnxruntime-training is installed."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "answer.json")
        code = f"{code}; import json, sys; open(sys.argv[1], 'w').write(json.dumps(answer))"
        done = subprocess.run(
            [os.environ[PYTHON], "-c", code, str(told)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=600,
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-4000:])
        return json.loads(told.read_text("utf-8"))


def ask_theirs() -> dict[str, dict]:
    """The results of all scripts, from there."""
    return ask("from tests.upstream import runner; answer = runner.run_theirs()")


def recorded() -> dict[str, dict]:
    """The results that onnxruntime-training gave when the record was made."""
    return json.loads(RECORD.read_text("utf-8"))


if __name__ == "__main__":
    if PYTHON not in os.environ:
        sys.exit(f"{PYTHON} is not set: it names the Python that has onnxruntime-training")
    lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(ask_theirs().items()))
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
