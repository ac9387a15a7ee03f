"""A small classifier, its artifacts and batches for it: what the tests of the API train."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TRAINABLE = ["fc1.weight", "fc1.bias", "fc2.weight"]
FROZEN = ["fc2.bias"]
SIZES = {"fc1.weight": 128, "fc1.bias": 16, "fc2.weight": 48, "fc2.bias": 3}


def mlp() -> onnx.ModelProto:
    """x [batch, 8] -> Linear(16) -> ReLU -> Linear(3) -> output [batch, 3], at opset 17."""
    rng = np.random.default_rng(0)
    weights = {
        "fc1.weight": rng.normal(0, 0.3, (16, 8)),
        "fc1.bias": np.zeros(16),
        "fc2.weight": rng.normal(0, 0.3, (3, 16)),
        "fc2.bias": np.array([0.1, 0.0, -0.1]),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h"], transB=1),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("Gemm", ["r", "fc2.weight", "fc2.bias"], ["output"], transB=1),
        ],
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def write_artifacts(folder: Path, optimizer: str) -> Path:
    """Generates the artifacts of the classifier; returns the folder they are in."""
    from blockdsl import artifacts

    artifacts.generate_artifacts(
        mlp(),
        requires_grad=TRAINABLE,
        frozen_params=FROZEN,
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType[optimizer],
        artifact_directory=folder,
        additional_output_names=["output"],
        nominal_checkpoint=True,
    )
    return folder


def batch(seed: int = 0, size: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels of one batch."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(size, 8)).astype(np.float32), rng.integers(0, 3, size)


def cross_entropy(values: dict[str, np.ndarray], x: np.ndarray, labels: np.ndarray) -> float:
    """The loss of the classifier, in NumPy."""
    hidden = np.maximum(x @ values["fc1.weight"].T + values["fc1.bias"], 0)
    logits = hidden @ values["fc2.weight"].T + values["fc2.bias"]
    logits -= logits.max(axis=1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return float(-log_p[np.arange(len(labels)), labels].mean())
