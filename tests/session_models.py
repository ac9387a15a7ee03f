"""Small artifacts with gradients written by hand, and the same mathematics in NumPy.

The model is `y = (x @ weight + bias) * scale` with a mean square loss. `weight` and `fc.bias` are
trained; `scale` is frozen; `running` is a running mean of `y`, a frozen parameter that the training
graph updates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, parser

from blockdsl.backend.checkpoint import Checkpoint, save

HEADER = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>'

# The bodies with which artifacts run on runtimes that lack the operator.
ACCUMULATOR = """
<domain: "com.microsoft", opset_import: ["": 17]>
InPlaceAccumulatorV2 (buffer, value, reset) => (out) { out = Identity(reset) }
"""

TRAINING = f"""
{HEADER}
train (FLOAT[batch, 3] x, FLOAT[batch, 2] target, FLOAT[3, 2] weight, FLOAT[2] "fc.bias",
       FLOAT[2] scale, FLOAT[2] running,
       FLOAT[3, 2] "weight_grad.accumulation.buffer", FLOAT[2] "fc.bias_grad.accumulation.buffer",
       bool[1] lazy_reset_grad)
   => (FLOAT loss, FLOAT[batch, 2] y, bool[1] "weight_grad.accumulation.out",
       bool[1] "fc.bias_grad.accumulation.out", bool[1] "running_grad.accumulation.out")
<int64[1] rows = {{0}}, bool[1] always = {{1}},
 float two32 = {{2}}, float keep32 = {{0.75}}, float add32 = {{0.25}}>
{{
    xw = MatMul(x, weight)
    z = Add(xw, "fc.bias")
    y = Mul(z, scale)
    e = Sub(y, target)
    ee = Mul(e, e)
    loss = ReduceMean<keepdims: int = 0>(ee)
    count = Size(e)
    n = CastLike(count, e)
    two = CastLike(two32, e)
    e2 = Mul(e, two)
    dy = Div(e2, n)
    dz = Mul(dy, scale)
    xt = Transpose<perm: ints = [1, 0]>(x)
    dw = MatMul(xt, dz)
    db = ReduceSum<keepdims: int = 0>(dz, rows)
    mean = ReduceMean<axes: ints = [0], keepdims: int = 0>(y)
    keep = CastLike(keep32, e)
    add = CastLike(add32, e)
    kept = Mul(running, keep)
    added = Mul(mean, add)
    running_new = Add(kept, added)
    "weight_grad.accumulation.out" = com.microsoft.InPlaceAccumulatorV2(
        "weight_grad.accumulation.buffer", dw, lazy_reset_grad)
    "fc.bias_grad.accumulation.out" = com.microsoft.InPlaceAccumulatorV2(
        "fc.bias_grad.accumulation.buffer", db, lazy_reset_grad)
    "running_grad.accumulation.out" = com.microsoft.InPlaceAccumulatorV2(
        running, running_new, always)
}}
{ACCUMULATOR}
"""

EVAL = f"""
{HEADER}
evaluate (FLOAT[batch, 3] x, FLOAT[batch, 2] target, FLOAT[3, 2] weight, FLOAT[2] "fc.bias",
          FLOAT[2] scale, FLOAT[2] running) => (FLOAT loss, FLOAT[batch, 2] centred)
{{
    xw = MatMul(x, weight)
    z = Add(xw, "fc.bias")
    y = Mul(z, scale)
    centred = Sub(y, running)
    e = Sub(y, target)
    ee = Mul(e, e)
    loss = ReduceMean<keepdims: int = 0>(ee)
}}
"""

# Momentum whose step shrinks with the number of steps: it uses every input there is.
OPTIMIZER = f"""
{HEADER}
step (float[1] learning_rate, int64[1] step,
      FLOAT[3, 2] weight, FLOAT[3, 2] weight_grad, FLOAT[3, 2] "weight.momentum0",
      FLOAT[2] "fc.bias", FLOAT[2] "fc.bias_grad", FLOAT[2] "fc.bias.momentum0")
   => (FLOAT[3, 2] "weight.out", FLOAT[3, 2] "weight.momentum0.out",
       FLOAT[2] "fc.bias.out", FLOAT[2] "fc.bias.momentum0.out")
{{
    decay32 = Constant<value: tensor = float {{0.5}}>()
    decay = CastLike(decay32, weight)
    rate32 = Cast<to: int = 1>(step)
    rate1 = Div(learning_rate, rate32)
    rate = CastLike(rate1, decay)
    m1 = Mul("weight.momentum0", decay)
    "weight.momentum0.out" = Add(m1, weight_grad)
    u1 = Mul("weight.momentum0.out", rate)
    "weight.out" = Sub(weight, u1)
    m2 = Mul("fc.bias.momentum0", decay)
    "fc.bias.momentum0.out" = Add(m2, "fc.bias_grad")
    u2 = Mul("fc.bias.momentum0.out", rate)
    "fc.bias.out" = Sub("fc.bias", u2)
}}
"""


def model(text: str, float_type: str = "float") -> ModelProto:
    """A model from its text, with one floating-point type throughout."""
    return parser.parse_model(text.replace("FLOAT", float_type))


def checkpoint(seed: int = 0, dtype: Any = np.float32) -> Checkpoint:
    """Random parameters."""
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> Any:
        return rng.normal(size=shape).astype(dtype)

    return Checkpoint(
        {"weight": draw(3, 2), "fc.bias": draw(2)},
        {"scale": draw(2), "running": np.zeros(2, dtype)},
    )


def batch(seed: int = 1, size: int = 4, dtype: Any = np.float32) -> list[Any]:
    """A random input and target."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(size, width)).astype(dtype) for width in (3, 2)]


@dataclass(frozen=True)
class Artifacts:
    """The files of one generated set."""

    folder: Path
    training: Path
    eval: Path
    optimizer: Path
    checkpoint: Path


def write(folder: Path, float_type: str = "float", dtype: Any = np.float32) -> Artifacts:
    """Writes the artifacts of the model."""
    files = Artifacts(
        folder,
        folder / "training_model.onnx",
        folder / "eval_model.onnx",
        folder / "optimizer_model.onnx",
        folder / "checkpoint",
    )
    for path, text in (
        (files.training, TRAINING),
        (files.eval, EVAL),
        (files.optimizer, OPTIMIZER),
    ):
        onnx.save(model(text, float_type), path)
    save(checkpoint(dtype=dtype), files.checkpoint)
    return files


@dataclass
class Reference:
    """The same training in NumPy, in float64."""

    weight: Any
    bias: Any
    scale: Any
    running: Any
    grads: dict[str, Any] = field(default_factory=dict)
    momenta: dict[str, Any] = field(default_factory=dict)
    steps: int = 0

    @classmethod
    def of(cls, state: Checkpoint) -> Reference:
        """A reference that starts where a checkpoint does."""
        values = state.trainable | state.frozen
        names = ("weight", "fc.bias", "scale", "running")
        return cls(*(np.array(values[name], np.float64) for name in names))

    def train(self, x: Any, target: Any, *, reset: bool = True) -> Any:
        """Forward and backward; returns the loss."""
        y = (x @ self.weight + self.bias) * self.scale
        e = y - target
        dz = 2 * e / e.size * self.scale
        self.running = 0.75 * self.running + 0.25 * y.mean(axis=0)
        new = {"weight": x.T @ dz, "fc.bias": dz.sum(axis=0)}
        self.grads = new if reset else {n: self.grads[n] + g for n, g in new.items()}
        return (e**2).mean()

    def step(self, rate: float) -> None:
        """The optimizer's step."""
        self.steps += 1
        rate = np.float32(rate) / np.float32(self.steps)  # as the graph has it
        for name in ("weight", "fc.bias"):
            self.momenta[name] = 0.5 * self.momenta.get(name, 0.0) + self.grads[name]
            attribute = name.removeprefix("fc.")
            value = getattr(self, attribute) - np.float64(rate) * self.momenta[name]
            setattr(self, attribute, value)
