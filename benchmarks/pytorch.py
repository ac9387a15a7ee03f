"""PyTorch, in eager mode: the same models, with the parameters of the ONNX files."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np
import onnx
import torch
from drop_in import batch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(64, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
        )

    def forward(self, x):
        return functional.relu(x + self.inner(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(Residual(), Residual())
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


class Transformer(nn.Module):
    width, heads = 128, 4

    def __init__(self):
        super().__init__()
        width = self.width
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in "qkv")
        self.out = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        x = x + self.feed_forward(x)
        return self.head(x.mean(1))

    def attention(self, x):
        parts = [
            linear(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        ]
        mixed = functional.scaled_dot_product_attention(*parts)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(64, 128, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        _, (last, _) = self.lstm(x)
        return self.head(last.squeeze(0))


MODELS = {
    "mlp": lambda: nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    ),
    "cnn": lambda: nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 10),
    ),
    "resnet": ResNet,
    "transformer": Transformer,
    "lstm": Lstm,
}


class PyTorch:
    """A contender."""

    def versions(self) -> dict[str, str]:
        """Of what runs here."""
        return {"python": platform.python_version(), "torch": torch.__version__}

    def load(
        self, workload: str, model: str, parameters: list[str], folder: str, threads: int
    ) -> None:
        """Make a module with the parameters of an ONNX file."""
        del folder
        torch.set_num_threads(threads)
        self.module = MODELS[workload]()
        stored = {t.name: t for t in onnx.load(model).graph.initializer}
        _fill(self.module, (onnx.numpy_helper.to_array(stored[name]) for name in parameters))
        # The defaults of onnxruntime-training.
        self.optimizer = torch.optim.AdamW(self.module.parameters(), eps=1e-6, weight_decay=0)
        self.inputs, self.labels = (torch.from_numpy(array) for array in batch(workload))

    def steps(self, count: int) -> dict[str, Any]:
        """Train; the seconds of every pass and of every update of the parameters, the last loss."""
        passes, updates = [], []
        for _ in range(count):
            began = perf_counter()
            loss = functional.cross_entropy(self.module(self.inputs), self.labels)
            loss.backward()
            number = loss.item()
            passed = perf_counter()
            self.optimizer.step()
            self.optimizer.zero_grad()
            updates.append(perf_counter() - passed)
            passes.append(passed - began)
        return {"passes": passes, "updates": updates, "loss": number}


def _fill(module: nn.Module, values: Iterator[np.ndarray]) -> None:
    """Write parameters, which are in the same order, into a module."""
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.LSTM):
                _fill_lstm(layer, *(next(values) for _ in "WRB"))
                continue
            for parameter in layer.parameters(recurse=False):
                value = next(values)
                transposed = isinstance(layer, nn.Linear) and value.ndim == 2
                parameter.copy_(torch.tensor(value.T if transposed else value))


def _fill_lstm(layer: nn.LSTM, w: np.ndarray, r: np.ndarray, b: np.ndarray) -> None:
    """The gates are input, output, forget, cell in ONNX, and input, forget, cell, output here."""
    sources = [w[0], r[0], *np.split(b[0], 2)]
    for parameter, source in zip(layer.parameters(), sources, strict=True):
        i, o, f, c = np.split(source, 4)
        parameter.copy_(torch.tensor(np.concatenate([i, f, c, o])))
