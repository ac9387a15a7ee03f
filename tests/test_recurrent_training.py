"""Recurrent cells with dropout, as exporters of loops write them, train on either engine."""

import numpy as np
import pytest
from onnx import numpy_helper, parser

from blockdsl import artifacts
from blockdsl.api import CheckpointState, Module, Optimizer

CELL = """
  i = MatMul (b, w_in)  r = MatMul (a, w)  t = Add (i, r)
  u = Dropout (t, ratio, trains)  c = Tanh (u)"""

SCAN = f"""
  h, all = Scan <num_scan_inputs = 1, body = cell (float[N, 4] a, float[N, 3] b)
      => (float[N, 4] c, float[N, 4] d) {{ {CELL}  d = Identity (c) }}> (start, x)"""

SEQUENCE = f"""
  rows = SplitToSequence <axis = 0, keepdims = 0> (x)
  count = SequenceLength (rows)
  none = SequenceEmpty <dtype = 1> ()
  end, states = Loop (count, "", start, none) <body = step (int64 k, bool go, float[N, 4] a, s)
      => (bool still, float[N, 4] c, e) {{
        b = SequenceAt (rows, k)  {CELL}  e = SequenceInsert (s, c)  still = Identity (go)
      }}>
  all = ConcatFromSequence <axis = 0, new_axis = 1> (states)
  h = Gather (all, last)"""

PARAMETERS = {"w_in": (3, 4), "w": (4, 4), "w_out": (4, 2)}


def model_of(loop, rng):
    declared = ", ".join(f"float[{a}, {b}] {name}" for name, (a, b) in PARAMETERS.items())
    model = parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 17]>
    recurrent (float[T, N, 3] x, {declared}) => (float[N, 2] y) {{
      ratio = Constant <value = float {{0.2}}> ()
      trains = Constant <value = bool {{1}}> ()
      zero = Constant <value = int64 {{0}}> ()
      last = Constant <value = int64 {{-1}}> ()
      first = Gather (x, zero)
      nothing = Sub (first, first)
      start = MatMul (nothing, w_in)
      {loop}
      y = MatMul (h, w_out)
    }}""")
    del model.graph.input[1:]
    for name, shape in PARAMETERS.items():
        array = rng.normal(0, 0.5, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


@pytest.mark.parametrize("loop", [SCAN, SEQUENCE], ids=["scan", "sequence"])
def test_learns(loop, engine, rng, tmp_path):
    artifacts.generate_artifacts(
        model_of(loop, rng),
        loss=artifacts.LossType.MSELoss,
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory=tmp_path,
    )
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint", engine=engine)
    module = Module(tmp_path / "training_model.onnx", state)
    optimizer = Optimizer(tmp_path / "optimizer_model.onnx", module)
    optimizer.set_learning_rate(0.02)
    x = rng.standard_normal((5, 16, 3)).astype(np.float32)
    target = np.stack([np.tanh(x.sum(axis=(0, 2))), x[-1, :, 0]], axis=1)
    losses = []
    for _ in range(60):
        losses.append(float(module(x, target)))
        optimizer.step()
        module.lazy_reset_grad()
    assert np.mean(losses[-10:]) < 0.75 * losses[0]
