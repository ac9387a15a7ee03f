"""The models of tests/data/zoo, their losses, and what PyTorch gets for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

from blockdsl.graph import Value, input, op

FOLDER = Path(__file__).parent / "data" / "zoo"


@dataclass(frozen=True)
class Entry:
    """One model with its golden values."""

    file: str
    opset: int
    frozen_batchnorm: bool
    parameters: list[str]
    null_gradient: list[str]
    split_parameters: list[list[str]]
    loss: list[dict[str, Any]]
    optimizer: dict[str, Any]
    comparable_steps: int
    comparable_steps_sgd: int

    @property
    def name(self) -> str:
        return self.file.removesuffix(".onnx")

    @property
    def model(self) -> ModelProto:
        return onnx.load(FOLDER / self.file)

    @property
    def trained(self) -> list[str]:
        """The parameters, with every initializer that holds a part of one."""
        parts = [name for names in self.split_parameters for name in names]
        return list(dict.fromkeys([*self.parameters, *parts]))

    @cached_property
    def golden(self) -> dict[str, np.ndarray]:
        with np.load(FOLDER / f"{self.name}.npz") as stored:
            return dict(stored)

    def feeds(self, batch: int) -> dict[str, np.ndarray]:
        """The inputs and labels of one of the two batches."""
        prefix = f"in.{batch}."
        inputs = {k[len(prefix) :]: v for k, v in self.golden.items() if k.startswith(prefix)}
        labels = {
            f"label.{i}": self.golden[term["label"].replace("<i>", str(batch))]
            for i, term in enumerate(self.loss)
        }
        return inputs | labels

    def build_loss(self, output: Any) -> Value:
        """The loss, appended to the open model; its labels become inputs `label.<k>`.

        Args:
            output: A function from the name of an output to its `Value`.
        """
        return reduce(add, [_term(i, t, output(t["output"])) for i, t in enumerate(self.loss)])

    def __str__(self) -> str:
        return self.name


def _term(index: int, term: dict[str, Any], y: Value) -> Value:
    loss = _LOSSES[term["kind"]](y, f"label.{index}", term)
    return loss if term["weight"] == 1 else loss * term["weight"]


def _cross_entropy(y: Value, label: str, term: dict[str, Any]) -> Value:
    axis = term["class_axis"] % y.rank
    if axis != 1:
        y = y.transpose(0, axis, *(a for a in range(1, y.rank) if a != axis))
    t = input(label, np.int64, [d for a, d in enumerate(y.shape) if a != 1])
    return op.SoftmaxCrossEntropyLoss(y, t, ignore_index=term.get("ignore_index"))


def _mse(y: Value, label: str, term: dict[str, Any]) -> Value:
    return (y - input(label, y.dtype, y.shape)).square().mean()


def _l1(y: Value, label: str, term: dict[str, Any]) -> Value:
    return (y - input(label, y.dtype, y.shape)).abs().mean()


def _bce_with_logits(y: Value, label: str, term: dict[str, Any]) -> Value:
    return (y.softplus() - y * input(label, y.dtype, y.shape)).mean()


_LOSSES = {
    "cross_entropy": _cross_entropy,
    "mse": _mse,
    "l1": _l1,
    "bce_with_logits": _bce_with_logits,
}

ENTRIES = [Entry(**row) for row in json.loads((FOLDER / "index.json").read_text("utf-8"))]
