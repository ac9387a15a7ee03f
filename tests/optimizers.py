"""Optimizers under test: a table, what NumPy says of each row, and their models run on arrays."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, numpy_helper

import blockdsl
from blockdsl.graph.portable import sign
from blockdsl.graph.tensor import elem_type_of, np_dtype
from blockdsl.optim import (
    SGD,
    AdamW,
    AddDecayedWeights,
    Chain,
    ClipGradNorm,
    Optimizer,
    ScaleByAdam,
    ScaleByLearningRate,
    Step,
    Trace,
    Update,
)
from blockdsl.passes.unroll_optimizer import unroll_optimizer
from blockdsl.testing import evaluate

PYTORCH = json.loads(
    Path(__file__).with_name("data").joinpath("optimizers.json").read_text("utf-8")
)
"""What PyTorch says: written by data/make_optimizers.py."""

RATES = PYTORCH["rates"]
START = PYTORCH["parameters"]
GRADIENTS = PYTORCH["gradients"]


class Lion(Optimizer):
    """An optimizer of a user's own, in one formula."""

    slots = ("mean",)

    def update(self, parameter, gradient, slots, learning_rate, step):
        (mean,) = slots
        direction = sign(0.75 * mean + 0.25 * gradient)
        return parameter - learning_rate * direction, [0.5 * mean + 0.5 * gradient]


class Sign(Step):
    """A step of a user's own."""

    def __call__(self, update, parameter, slots, context):
        return Update(sign(update.as_tensor(parameter))), slots


def made(name, arguments):
    """An optimizer by its name and the arguments that tables and files hold."""
    arguments = dict(arguments)
    if "clip_grad" in arguments:
        arguments["clip_grad"] = ClipGradNorm(arguments["clip_grad"])
    if "betas" in arguments:
        arguments["betas"] = tuple(arguments["betas"])
    return {"AdamW": AdamW, "SGD": SGD}[name](**arguments)


HUGGING_FACE = [
    ("AdamW", {}),
    ("AdamW", {"weight_decay": 0.25}),
    ("AdamW", {"weight_decay": 0.25, "eps": 0.5, "betas": [0.5, 0.75]}),
    ("AdamW", {"weight_decay": 0.25, "bias_correction": False}),
    ("AdamW", {"weight_decay": 0.25, "clip_grad": 1.5}),
    ("AdamW", {"weight_decay": 0.25, "weight_decay_groups": {"*.bias": 0.0, "sc*": 0.5}}),
    ("AdamW", {"weight_decay": 0.25, "bias_correction": False, "mode": "torch"}),
]
ROWS = [*HUGGING_FACE, *((row["optimizer"], row["arguments"]) for row in PYTORCH["rows"])]
"""Optimizers that NumPy has the formulas of."""

OTHERS = {
    "lion": Lion,
    "signs": lambda: Chain(Sign(), ScaleByLearningRate()),
    "adam with coupled decay": lambda: Chain(
        AddDecayedWeights(0.1), ScaleByAdam(), ScaleByLearningRate(), clip_grad=ClipGradNorm(2.0)
    ),
    "decay on both sides": lambda: Chain(
        AddDecayedWeights(0.1), Trace(0.5), AddDecayedWeights(0.2), ScaleByLearningRate()
    ),
}


def name_of(row):
    name, arguments = row
    return "-".join([name, *(f"{k}={v}" for k, v in arguments.items())]).replace(" ", "")


EVERY = {name_of(row): lambda row=row: made(*row) for row in ROWS} | OTHERS
"""Every optimizer: what makes it by what it is called."""


def arrays(values, dtype=np.float64):
    """A step of the file's parameters or gradients as arrays."""
    return {name: np.asarray(value, dtype) for name, value in values.items()}


def model_of(optimizer, parameters, opset=17, frozen=()) -> ModelProto:
    """The optimizer model for some parameters."""
    tensors = [numpy_helper.from_array(value, name) for name, value in parameters.items()]
    with blockdsl.empty_base(opset):
        optimizer((tensors, list(frozen)))
    return optimizer.to_model_proto()


def plain_of(optimizer, parameters, opset=17) -> ModelProto:
    """The plain form of the optimizer model."""
    return plain_form(model_of(optimizer, parameters, opset), parameters)


def plain_form(model: ModelProto, parameters) -> ModelProto:
    """A model in its plain form."""
    if not any(value.type.HasField("sequence_type") for value in model.graph.input):
        return model
    types = [(name, elem_type_of(v.dtype), v.shape) for name, v in parameters.items()]
    return unroll_optimizer(model, types)


class Stepper:
    """The plain form of an optimizer model and the tensors that it changes."""

    def __init__(self, model: ModelProto, parameters: dict[str, np.ndarray]) -> None:
        self.state = dict(parameters)
        for value in model.graph.input:
            kind = value.type.tensor_type
            if value.name not in self.state and not value.name.endswith("_grad"):
                shape = [dim.dim_value for dim in kind.shape.dim]
                dtype = np_dtype(kind.elem_type)
                self.state[value.name] = np.zeros(shape, dtype)
        self.count = 0
        self._outputs = [value.name for value in model.graph.output]
        self._names = [value.name for value in model.graph.input]
        self._run: Any = evaluate(model)
        if not any(v.dtype.name == "bfloat16" for v in parameters.values()):  # NumPy has none
            self._session = onnxruntime.InferenceSession(
                model.SerializeToString(), providers=["CPUExecutionProvider"]
            )
            self._run = lambda feeds: self._session.run(None, feeds)

    def step(self, gradients: dict[str, np.ndarray], rate: float) -> dict[str, np.ndarray]:
        """Takes a step; gives the parameters and slots."""
        self.count += 1
        given = {f"{name}_grad": value for name, value in gradients.items()}
        given |= {"learning_rate": np.float32([rate]), "step": np.int64([self.count])}
        feeds = self.state | given
        results = self._run({name: feeds[name] for name in self._names})
        for output, value in zip(self._outputs, results, strict=True):
            self.state[output.removesuffix(".out")] = np.asarray(value)
        return self.state


def trajectory(stepper, dtype=np.float32):
    """The state after each of the file's steps."""
    for rate, gradients in zip(RATES, GRADIENTS, strict=True):
        yield dict(stepper.step(arrays(gradients, dtype), rate))


def native_rows():
    """The optimizers that the training build has an operator for."""
    parameters = arrays(START, np.float32)
    return [r for r in ROWS if made(*r).native(list(parameters)) is not None]


class Reference:
    """The same optimizers in NumPy, parameter by parameter as their papers have them."""

    def __init__(self, name, arguments, parameters):
        self.formula = {"AdamW": self.adamw, "SGD": self.sgd}[name]
        self.arguments = arguments
        self.parameters = {n: v.astype(np.float64) for n, v in parameters.items()}
        self.slots = {n: [0 * v, 0 * v] for n, v in self.parameters.items()}
        self.count = 0

    def step(self, gradients, rate):
        self.count += 1
        gradients = {n: v.astype(np.float64) for n, v in gradients.items()}
        if "clip_grad" in self.arguments:
            norm = np.sqrt(sum((g * g).sum() for g in gradients.values()))
            factor = min(self.arguments["clip_grad"] / (norm + 1e-6), 1.0)
            gradients = {n: g * factor for n, g in gradients.items()}
        for name, g in gradients.items():
            groups = self.arguments.get("weight_decay_groups", {})
            decay = next(
                (d for glob, d in groups.items() if fnmatchcase(name, glob)),
                self.arguments.get("weight_decay", 0.0),
            )
            w, slots = self.parameters[name], self.slots[name]
            self.parameters[name] = self.formula(w, g, slots, rate, decay)
        return self.parameters

    def adamw(self, w, g, slots, rate, decay):
        a, b = self.arguments.get("betas", (0.9, 0.999))
        eps = self.arguments.get("eps", 1e-6)
        m, v = slots[:] = a * slots[0] + (1 - a) * g, b * slots[1] + (1 - b) * g * g
        c1 = c2 = 1.0
        if self.arguments.get("bias_correction", True):
            c1, c2 = 1 - a**self.count, 1 - b**self.count
        if self.arguments.get("mode") == "torch":
            return w - rate * decay * w - rate * (m / c1) / (np.sqrt(v / c2) + eps)
        w = w - rate * np.sqrt(c2) / c1 * m / (np.sqrt(v) + eps)
        return w - rate * decay * w

    def sgd(self, w, g, slots, rate, decay):
        momentum = self.arguments.get("momentum", 0.0)
        g = g + decay * w
        if momentum:
            share = 1 if self.count == 1 else 1 - self.arguments.get("dampening", 0.0)
            slots[0] = momentum * slots[0] + share * g
            g = g + momentum * slots[0] if self.arguments.get("nesterov") else slots[0]
        return w - rate * g
