"""The benchmarks run, and the page of the figures is what they made."""

import re
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest

ROOT = Path(__file__).parents[1]
PAGES = ["benchmarks/README.md", "docs/reference/performance.md"]
SCRIPTS = ["build.py", "cuda_check.py", "large.py", "report.py", "step.py"]


def run(script, *arguments):
    command = [sys.executable, f"benchmarks/{script}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_page_is_current():
    """It is made by `python benchmarks/report.py --write`, and has the rows of the benchmarks."""
    assert (ROOT / PAGES[1]).read_text("utf-8") == run("report.py")


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page):
    text = (ROOT / page).read_text("utf-8").replace("\\\n", " ")
    commands = re.findall(r"python benchmarks/(\w+\.py)([^`\n]*)", text)
    assert commands
    for script, arguments in commands:
        known = run(script, "--help") if script != "cuda_check.py" else ""
        assert script in SCRIPTS
        assert set(re.findall(r"--[\w-]+", arguments)) <= set(re.findall(r"--[\w-]+", known))


def test_every_contender_has_every_model():
    text = {name: (ROOT / "benchmarks" / name).read_text("utf-8") for name in
            ("workloads.py", "models.py", "pytorch.py")}  # fmt: skip
    names = re.findall(r'Workload\("(\w+)"', text["workloads.py"])
    assert names
    for name in names:
        assert f'"{name}": ' in text["models.py"]
        assert f'"{name}": ' in text["pytorch.py"]


def test_build_runs():
    assert '"seconds"' in run("build.py", "--rows", "chain/100", "--build-rounds", "1")


def test_step_runs():
    assert '"ratio": 1.0' in run("step.py", "--rows", "mlp", "--step-rounds", "1")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no resource.getrusage")
def test_large_runs():
    assert '"resume"' in run("large.py", "--gigabytes", "0.02")


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(),
    reason="cuda_check.py does its work here",
)
def test_cuda_check_says_why_it_skips():
    assert re.fullmatch(r"skipped: .* built without CUDA.*\n", run("cuda_check.py"))
