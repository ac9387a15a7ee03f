"""Both onnxruntime-training and blockdsl: one has the other's API, so one program measures both."""

from __future__ import annotations

import os
import platform
import resource
import sys
from importlib import import_module
from importlib.metadata import version
from time import perf_counter, process_time
from typing import Any

import numpy as np
import onnx
import onnxruntime
from losses import weighted_sum
from workloads import CLASSES, STEPS


class DropIn:
    """A contender with the API of onnxruntime-training.

    Args:
        engine: The engine of blockdsl; None for onnxruntime-training itself.
    """

    def __init__(self, engine: str | None) -> None:
        self.engine = engine
        if engine is not None:
            os.environ["BLOCKDSL_ENGINE"] = engine
        home = "onnxruntime.training" if engine is None else "blockdsl"
        self.onnxblock = import_module(f"{home}.onnxblock" if engine is None else home)
        self.artifacts = import_module(f"{home}.artifacts")
        self.api = import_module(f"{home}.api")

    def versions(self) -> dict[str, str]:
        """Of what runs here."""
        return {
            "python": platform.python_version(),
            "onnx": version("onnx"),
            "onnxruntime": onnxruntime.__version__,
        }

    def write(self, model: str, path: str, nodes: int = 0) -> list[str]:
        """Write a forward model to a file, which only blockdsl can; the names of its parameters."""
        import models

        if model == "chain":
            return models.write(models.Chain(nodes), [8], path)
        if model == "wide":
            return models.write(models.Wide(), [models.Wide.sizes[0]], path)
        return models.write(models.STEPS[model](), STEPS[model].batch[1:], path)

    def build(self, model: str, parameters: list[str], terms: int, folder: str) -> dict[str, float]:
        """Make artifacts; the seconds it took, and the memory of this process at its peak."""
        began, worked = perf_counter(), process_time()
        self.artifacts.generate_artifacts(
            # Of a path onnxruntime-training looks for files beside it that it has not written.
            onnx.load(model) if self.engine is None else model,
            requires_grad=parameters,
            loss=weighted_sum(self.onnxblock, terms),
            optimizer=self.artifacts.OptimType.AdamW,
            artifact_directory=folder,
        )
        return {
            "seconds": perf_counter() - began,
            "cpu_seconds": process_time() - worked,
            "peak_mb": _peak_mb(),
        }

    def load(
        self,
        workload: str,
        model: str,
        parameters: list[str],
        folder: str,
        threads: int = 0,
        device: str = "cpu",
    ) -> None:
        """Make the artifacts of a model and open them on a device."""
        proto = onnx.load(model)
        if self.engine is None:
            _declare_statistics(proto)
        self.artifacts.generate_artifacts(
            proto,
            requires_grad=parameters,
            loss=self.artifacts.LossType.CrossEntropyLoss,
            optimizer=self.artifacts.OptimType.AdamW,
            artifact_directory=folder,
        )
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        state = self.api.CheckpointState.load_checkpoint(f"{folder}/checkpoint")
        # Without the eval model: with batch norm, onnxruntime-training cannot load its own.
        self.module = self.api.Module(
            f"{folder}/training_model.onnx", state, device=device, session_options=options
        )
        self.optimizer = self.api.Optimizer(f"{folder}/optimizer_model.onnx", self.module)
        self.batch = batch(workload)

    def steps(self, count: int) -> dict[str, Any]:
        """Train; the seconds of every pass and of every update of the parameters, the last loss."""
        passes, updates = [], []
        for _ in range(count):
            began = perf_counter()
            loss = self.module(*self.batch)
            passed = perf_counter()
            self.optimizer.step()
            self.module.lazy_reset_grad()
            updates.append(perf_counter() - passed)
            passes.append(passed - began)
        return {"passes": passes, "updates": updates, "loss": float(loss)}


def batch(workload: str) -> tuple[np.ndarray, np.ndarray]:
    """What a model is fed, the same for every contender: random numbers and labels."""
    shape, rng = STEPS[workload].batch, np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, shape[0])
    return rng.standard_normal(shape, dtype=np.float32), labels


def _declare_statistics(model: onnx.ModelProto) -> None:
    """What onnxruntime-training needs to differentiate a LayerNormalization; no exporter does."""
    for node in model.graph.node:
        if node.op_type == "LayerNormalization":
            node.output.extend([f"{node.output[0]}.mean", f"{node.output[0]}.inverse"])


def _peak_mb() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 2 ** (20 if sys.platform == "darwin" else 10)  # bytes there, kilobytes here
