"""The extra `ort` chooses one ONNX Runtime wheel, and types are shipped."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
MACHINES = [
    ("linux", "x86_64"),
    ("linux", "aarch64"),
    ("win32", "AMD64"),
    ("win32", "ARM64"),
    ("darwin", "x86_64"),
    ("darwin", "arm64"),
    ("freebsd14", "amd64"),
]
TRAINING = {("linux", "x86_64"), ("win32", "AMD64"), ("darwin", "x86_64"), ("darwin", "arm64")}


def ort_extra() -> list[Requirement]:
    """The requirements of the extra `ort`, read without a TOML parser (Python 3.10 has none)."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = re.search(r"^ort = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    return [Requirement(line) for line in re.findall(r'^ +"(.*)",$', block[1], re.MULTILINE)]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("machine", MACHINES, ids="-".join)
def test_ort_chooses_one_wheel_everywhere(python, machine):
    platform, processor = machine
    place = {
        "python_version": python,
        "sys_platform": platform,
        "platform_machine": processor,
    }
    chosen = [r.name for r in ort_extra() if r.marker is not None and r.marker.evaluate(place)]
    training = machine in TRAINING and python != "3.13"
    assert chosen == ["onnxruntime-training-cpu" if training else "onnxruntime"]


def test_types_are_shipped():
    assert (ROOT / "blockdsl" / "py.typed").exists()
