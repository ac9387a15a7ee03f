"""Whether all is well on a machine with a GPU: the CUDA tests, and training there and on the CPU.

`python benchmarks/cuda_check.py` in an environment with onnxruntime-gpu; it takes less than 8
minutes. Elsewhere it says why it skips.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from math import isclose

from pool import HERE, ContenderError, Worker
from workloads import STEPS

TESTS_LIMIT = 240
"""Seconds for the tests."""

STEP_LIMIT = 20
"""Seconds for one request to a worker: opening a model, or a few steps."""


def missing() -> str | None:
    """Why nothing can be checked here, `None` if it can."""
    if find_spec("onnxruntime") is None:
        return "no ONNX Runtime is installed"
    import onnxruntime

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return f"onnxruntime {onnxruntime.__version__} is built without CUDA: see onnxruntime-gpu"
    if not started():
        return "the CUDA provider does not start: no GPU, or not the CUDA and cuDNN that it needs"
    return None


def started() -> bool:
    """Whether a session on the GPU can be had."""
    import onnxruntime
    from onnx import TensorProto, helper

    if hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "probe", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    return bool(session.get_providers()[0] == "CUDAExecutionProvider")


def tests_pass() -> bool:
    """Whether the tests that need CUDA pass in time."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider"]
    try:
        code = subprocess.run(command, cwd=HERE.parent, timeout=TESTS_LIMIT, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"tests: not done after {TESTS_LIMIT} s")
        return False
    print("tests: there are none" if code == 5 else f"tests: {'failed' if code else 'passed'}")
    return code in (0, 5)


def trains(name: str) -> bool:
    """Whether a model trains on the GPU as it does on the CPU; prints how fast."""
    losses, medians = {}, {}
    for device in ("cpu", "cuda"):
        with (
            tempfile.TemporaryDirectory() as folder,
            Worker("session", sys.executable, STEP_LIMIT) as worker,
        ):
            path = f"{folder}/forward.onnx"
            try:
                parameters = worker.ask("write", model=name, path=path)
                worker.ask("load", workload=name, model=path, parameters=parameters,
                           folder=folder, device=device)  # fmt: skip
                losses[device] = [worker.ask("steps", count=1)["loss"] for _ in range(5)]
                steps = worker.ask("steps", count=20)
            except ContenderError as error:
                print(f"{name}: fails on {device}: {error}")
                return False
            totals = [a + b for a, b in zip(steps["passes"], steps["updates"], strict=True)]
            medians[device] = 1e3 * statistics.median(totals)
    same = all(isclose(a, b, rel_tol=1e-3) for a, b in zip(*losses.values(), strict=True))
    shown = ", ".join(f"{device} {ms:.2f} ms" for device, ms in medians.items())
    print(f"{name}: {shown}" if same else f"{name}: the losses differ: {losses}")
    return same


def main() -> int:
    began, reason = time.monotonic(), missing()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    passed = [tests_pass(), *map(trains, STEPS)]
    print(f"{'passed' if all(passed) else 'failed'} in {time.monotonic() - began:.0f} s")
    return not all(passed)


if __name__ == "__main__":
    sys.exit(main())
