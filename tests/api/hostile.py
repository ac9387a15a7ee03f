"""Calls of the API with arguments of every wrong type."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime

from blockdsl.api import (
    CheckpointState,
    LinearLRScheduler,
    Module,
    Optimizer,
    Parameters,
    Properties,
    set_seed,
)
from tests.api.mlp import SIZES, batch

Call = Callable[[], Any]
Calls = Iterator[tuple[str, Call]]
SHAPE = (16, 8)
ONES = np.ones(SHAPE, np.float32)


class Raising:
    """Raises when it is turned into an array or a number."""

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise ZeroDivisionError("no array")

    __float__ = __bool__ = __index__ = __array__


def values() -> dict[str, Any]:
    """Arguments for every call; one or two of them fit."""
    read_only = ONES.copy()
    read_only.flags.writeable = False
    wrap = onnxruntime.OrtValue.ortvalue_from_numpy
    dtypes = ["f8", "f2", "i8", ">f4", "c16", "?", "U1", "S1", "M8[s]", "V4", "O", "g"]
    return {
        **{repr(v): v for v in (None, "x", 3, -1, 1.5, [1, 2], [[1], [2, 3]], {}, b"ab", int)},
        "nan": float("nan"),
        "infinity": float("inf"),
        "huge": 10**400,
        "object": object(),
        "memory": memoryview(b"abcd"),
        "raising": Raising(),
        "fits": ONES.copy(),
        **{f"array of {d}": np.zeros(SHAPE).astype(d) for d in dtypes},
        "bfloat16": ONES.astype(ml_dtypes.bfloat16),
        "structure": np.zeros(SHAPE, [("a", "f4")]),
        "transposed": np.ones((8, 16), np.float32).T,
        "strided": np.ones((32, 8), np.float32)[::2],
        "broadcast": np.broadcast_to(np.float32(1), SHAPE),
        "read only": read_only,
        "unaligned": np.frombuffer(bytes(513), np.float32, 128, 1).reshape(SHAPE),
        "masked": np.ma.masked_array(ONES, mask=True),
        "no rows": np.zeros((0, 8), np.float32),
        "empty": np.zeros(0, np.float32),
        "scalar": np.float32(1),
        "rank 0": np.array(1, np.float32),
        "flat": np.ones(sum(SIZES.values()), np.float32),
        "rank 3": np.ones((1, *SHAPE), np.float32),
        "OrtValue": wrap(ONES.copy()),
        "C's OrtValue": wrap(ONES.copy())._ortvalue,
        "OrtValue of float64": wrap(ONES.astype(np.float64)),
        "OrtValue without rows": wrap(np.zeros((0, 8), np.float32)),
    }


class Run:
    """A checkpoint, and perhaps a module over it and its optimizer."""

    def __init__(self, folder: Path, engine: str, nominal: bool = False, opened: bool = True):
        self.folder, self.engine = folder, engine
        file = "nominal_checkpoint" if nominal else "checkpoint"
        self.state = CheckpointState.load_checkpoint(folder / file, engine=engine)
        if opened:
            self.open_module()
            self.open_optimizer()

    def open_module(self) -> None:
        self.module = Module(self.train_model, self.state, self.folder / "eval_model.onnx")

    def open_optimizer(self) -> None:
        self.optimizer = Optimizer(self.folder / "optimizer_model.onnx", self.module)

    def close(self) -> None:
        del self.module, self.optimizer
        gc.collect()

    @property
    def train_model(self) -> Path:
        return self.folder / "training_model.onnx"

    def step(self, seed: int = 0, size: int = 6) -> None:
        self.module(*batch(seed, size))
        self.optimizer.step()
        self.module.lazy_reset_grad()


def use_state(state: CheckpointState, folder: Path) -> list[np.ndarray]:
    """Everything that a state offers; returns views of its gradients."""
    views = []
    for name, parameter in state.parameters:
        parameter.data.sum()
        parameter.data = parameter.data * 1
        state.parameters[name] = parameter.data
        if (gradient := parameter.grad) is not None:
            views.append(gradient)
        repr((parameter, parameter.requires_grad, parameter.name))
    state.properties["epoch"] = 1
    repr((state, state.parameters, state.properties, state.engine, state.nominal))
    for with_optimizer in (False, True):
        CheckpointState.save_checkpoint(state, folder / "saved", with_optimizer)
    return views


def types(folder: Path, engine: str) -> Calls:
    """Every argument of the API, of every wrong type."""
    run, gone = Run(folder, engine), Run(folder, engine)
    gone.close()
    runs = {
        "before": Run(folder, engine, opened=False),
        "live": run,
        "gone": gone,
        "nominal": Run(folder, engine, nominal=True),
    }
    for name, value in values().items():
        for kind, made in constructors(run, value).items():
            yield f"{kind} of {name}", made
        for when, other in runs.items():
            for kind, used in state_calls(other.state, value).items():
                yield f"{kind} {name} ({when})", used
        for when in ("live", "nominal"):
            for kind, used in module_calls(runs[when], value).items():
                yield f"{kind} {name} ({when})", used


def constructors(run: Run, value: Any) -> dict[str, Call]:
    folder, load = run.folder, CheckpointState.load_checkpoint
    out, eval_model = folder / "saved", folder / "eval_model.onnx"
    module = partial(Module, run.train_model)
    return {
        "CheckpointState": lambda: CheckpointState(value),
        "load_checkpoint": lambda: load(value),
        "engine": lambda: load(folder / "checkpoint", engine=value),
        "save_checkpoint": lambda: CheckpointState.save_checkpoint(value, out),
        "path of save_checkpoint": lambda: CheckpointState.save_checkpoint(run.state, value),
        "flag of save_checkpoint": lambda: CheckpointState.save_checkpoint(run.state, out, value),
        "training model": lambda: Module(value, run.state),
        "state of Module": lambda: module(value),
        "eval model": lambda: module(run.state, value),
        "device": lambda: module(run.state, eval_model, value),
        "options": lambda: module(run.state, eval_model, session_options=value),
        "optimizer model": lambda: Optimizer(value, run.module),
        "module of Optimizer": lambda: Optimizer(folder / "optimizer_model.onnx", value),
        "optimizer of scheduler": lambda: LinearLRScheduler(value, 1, 2, 0.1),
        "warmup": lambda: LinearLRScheduler(run.optimizer, value, 2, 0.1).step(),
        "total": lambda: LinearLRScheduler(run.optimizer, 1, value, 0.1).step(),
        "initial rate": lambda: LinearLRScheduler(run.optimizer, 1, 2, value).step(),
        "step count": lambda: LinearLRScheduler(run.optimizer, 1, 2, 0.1).learning_rate(value),
        "seed": lambda: set_seed(value),
        "set_learning_rate": lambda: run.optimizer.set_learning_rate(value),
        "export path": lambda: run.module.export_model_for_inferencing(value, ["output"]),
        "export names": lambda: run.module.export_model_for_inferencing(folder / "e.onnx", value),
        "export name": lambda: run.module.export_model_for_inferencing(folder / "e.onnx", [value]),
    }


def state_calls(state: CheckpointState, value: Any) -> dict[str, Call]:
    parameters: Parameters = state.parameters
    properties: Properties = state.properties
    return {
        "parameters[]": lambda: parameters[value],
        "in parameters": lambda: value in parameters,
        "parameters[] =": lambda: parameters.__setitem__("fc1.weight", value),
        "parameters[?] =": lambda: parameters.__setitem__(value, ONES),
        "data =": lambda: setattr(parameters["fc1.weight"], "data", value),
        "properties[]": lambda: properties[value],
        "in properties": lambda: value in properties,
        "properties[] =": lambda: properties.__setitem__("a", value),
        "properties[?] =": lambda: properties.__setitem__(value, 1),
    }


def module_calls(run: Run, value: Any) -> dict[str, Call]:
    module, (x, labels) = run.module, batch()
    flat = np.zeros(sum(SIZES.values()), np.float32)
    return {
        "x in training": lambda: module.train()(value, labels),
        "labels in training": lambda: module.train()(x, value),
        "one input": lambda: module.train()(value),
        "x in evaluation": lambda: module.eval()(value, labels),
        "labels in evaluation": lambda: module.eval()(x, value),
        "mode": lambda: module.train(value),
        "copy_buffer": lambda: module.copy_buffer_to_parameters(value, trainable_only=False),
        "flag of copy_buffer": lambda: module.copy_buffer_to_parameters(flat, value),
        "flag of parameters": lambda: module.get_contiguous_parameters(value),
        "flag of size": lambda: module.get_parameters_size(value),
    }
