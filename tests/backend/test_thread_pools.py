"""Sessions run on the thread pool that the application has chosen, and opening them is silent.

After `onnxruntime.set_global_thread_pool_sizes` every session of blockdsl's own was refused: the
runtime printed "EP Error", the newest opset of the runtime was found to be the oldest, and some
training models did not open.
"""

from __future__ import annotations

import subprocess
import sys

import onnxruntime
import pytest

import blockdsl
from tests.runs import forward, generate, weight

CHOOSE = "onnxruntime.set_global_thread_pool_sizes(2, 1)"
HAS_CHOICE = hasattr(onnxruntime, "set_global_thread_pool_sizes")  # not in 1.19
PROGRAM = """
import sys
import numpy as np
import onnxruntime
{before}
import blockdsl
from blockdsl.api import CheckpointState, Module, Optimizer
from blockdsl.backend import prepare
from blockdsl.backend.limits import runtime_limits
from blockdsl.backend.ort_format import convert_to_ort
from blockdsl.trainer import Trainer
from pathlib import Path
{after}
folder = Path(sys.argv[1])
assert runtime_limits().opset >= 21, runtime_limits()
for options in (None, onnxruntime.SessionOptions()):
    state = CheckpointState.load_checkpoint(folder / "checkpoint", engine=sys.argv[2])
    module = Module(
        folder / "training_model.onnx", state, folder / "eval_model.onnx", session_options=options
    )
    optimizer = Optimizer(folder / "optimizer_model.onnx", module)
    x, target = np.ones((5, 2, 8), np.float32), np.zeros((5, 2, 4), np.float32)
    losses = []
    for _ in range(2):
        losses.append(float(module(x, target)))
        module(x, target)  # which opens the session that accumulates
        optimizer.step()
        module.lazy_reset_grad()
    module.eval()
    assert float(module(x, target)) < losses[0]
module.export_model_for_inferencing(folder / "exported.onnx", module.output_names()[:1])
prepare(folder / "eval_model.onnx")
convert_to_ort(folder / "exported.onnx")
if options is not None and hasattr(options, "use_per_session_threads"):
    assert options.use_per_session_threads  # the user's options are as they were
"""


def recurrent(x):
    y = blockdsl.op.LSTM(x, weight("w", 1, 16, 8), weight("r", 1, 16, 4), hidden_size=4)
    return y.reshape(5, 2, 4)


@pytest.mark.parametrize("moment", ["before", "after", "never"] if HAS_CHOICE else ["never"])
def test_sessions_open_silently(tmp_path, engine, moment):
    generate(tmp_path, forward(recurrent, (5, 2, 8)))
    chosen = {when: CHOOSE if when == moment else "" for when in ("before", "after")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(**chosen), str(tmp_path), engine],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
