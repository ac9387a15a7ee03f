"""Write the files of tests/data/exported: `python tests/data/make_exported.py`, with torch 2.13.

Each module is exported as it is initialised, since exporters merge and drop equal values, in four
ways: by the default exporter with its default arguments and as the guide says, and by the older
exporter in the same two ways. Beside them lie the module's parameters and, in evaluation and in
training mode, the mean square of its output and that loss's gradient.
"""

import copy
import logging
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional

FOLDER = Path(__file__).parent / "exported"

TRAINING = torch.onnx.TrainingMode.TRAINING
EXPORTS = {  # name: whether the module is in training mode, and the arguments
    "dynamo": (False, {"dynamo": True, "external_data": False}),
    "dynamo_plain": (True, {"dynamo": True, "optimize": False, "external_data": False}),
    "legacy": (False, {"dynamo": False}),
    "legacy_plain": (
        True,
        {"dynamo": False, "training": TRAINING, "do_constant_folding": False},
    ),
}


class LanguageModel(nn.Module):
    """Two normalised layers, of equal first values, and a tied head."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.norms = nn.ModuleList([nn.LayerNorm(6), nn.LayerNorm(6)])
        self.layers = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x)).tanh()
        return self.head(x)


class Residual(nn.Module):
    """A BatchNormalization before and one behind a convolution."""

    def __init__(self):
        super().__init__()
        self.before = nn.BatchNorm2d(3)
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.behind = nn.BatchNorm2d(3)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        x = self.before(x)
        return self.head((x + self.behind(self.conv(x))).relu().mean((2, 3)))


class Stack(nn.Module):
    """Copies of one layer, with a bias that is zero at first."""

    def __init__(self):
        super().__init__()
        layer = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        nn.init.zeros_(layer[2].bias)
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(2))
        self.head = nn.Linear(4, 3)
        nn.init.zeros_(self.head.bias)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x.mean(1))


class Groups(nn.Module):
    """Group normalisation, which is exported with constant scales, and a learned temperature."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.GroupNorm(2, 4)
        self.second = nn.Conv2d(4, 4, 1)
        self.second_norm = nn.GroupNorm(2, 4)

    def forward(self, x):
        return self.second_norm(self.second(self.norm(self.conv(x)).relu()))


class WeightNorm(nn.Module):
    """Weights that are computed of parameters."""

    def __init__(self):
        super().__init__()
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 3))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.conv(x).relu().mean(-1))


class Pool(nn.Module):
    """A learned query, zero at first."""

    def __init__(self):
        super().__init__()
        self.query = nn.Parameter(torch.zeros(1, 1, 4))
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        query = self.query.expand(x.shape[0], -1, -1)
        return self.attention(query, x, x, need_weights=False)[0]


class Autoencoder(nn.Module):
    """A matrix and its transpose."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 5))
        self.bias = nn.Parameter(torch.zeros(5))

    def forward(self, x):
        hidden = functional.linear(x, self.weight).tanh()
        return functional.linear(hidden, self.weight.t(), self.bias)


class Shared(nn.Module):
    """One layer called twice, under two names, and Dropout."""

    def __init__(self):
        super().__init__()
        layer = nn.Linear(5, 5)
        self.layers = nn.ModuleList([layer, layer])
        self.norm = nn.LayerNorm(5)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        for layer in self.layers:
            x = self.norm(layer(x)).relu()
        return self.dropout(x)


MODULES = {
    "language_model": (LanguageModel, lambda: torch.randint(0, 11, (2, 5))),
    "residual": (Residual, lambda: torch.randn(4, 3, 5, 5)),
    "stack": (Stack, lambda: torch.randn(2, 3, 4)),
    "groups": (Groups, lambda: torch.randn(2, 3, 5, 5)),
    "weight_norm": (WeightNorm, lambda: torch.randn(2, 3, 7)),
    "pool": (Pool, lambda: torch.randn(2, 3, 4)),
    "autoencoder": (Autoencoder, lambda: torch.randn(2, 3, 5)),
    "shared": (Shared, lambda: torch.randn(2, 3, 5)),
}


def goldens(module, x):
    """Parameters, losses and gradients, the latter two in both modes."""
    state = {name: value.clone() for name, value in module.state_dict().items()}
    found = {"x": x.numpy()}
    for mode in ("evaluation", "training"):
        module.load_state_dict(state)
        module.train(mode == "training")
        module.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        found[f"{mode}/loss"] = loss.detach().numpy()
        for name, parameter in module.named_parameters():
            found[f"{mode}/{name}"] = parameter.grad.numpy().copy()
    module.load_state_dict(state)
    return found


def strip(path):
    """Remove the metadata that names files of the machine that exported, or says things twice."""
    model = onnx.load(path)
    for node in model.graph.node:
        node.doc_string = ""
        kept = [
            entry
            for entry in node.metadata_props
            if entry.key != "namespace" and "stack_trace" not in entry.key
        ]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, path)


def main():
    """Write all files."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    FOLDER.mkdir(exist_ok=True)
    for name, (make, example) in MODULES.items():
        torch.manual_seed(0)
        module, x = make(), example()
        np.savez_compressed(FOLDER / f"{name}.npz", **goldens(module, x))
        state = {key: value.clone() for key, value in module.state_dict().items()}
        for way, (training, arguments) in EXPORTS.items():
            module.load_state_dict(state)
            module.train(training)
            path = FOLDER / f"{name}.{way}.onnx"
            torch.onnx.export(
                module,
                (x,),
                path,
                input_names=["x"],
                output_names=["y"],
                verbose=False,
                **arguments,
            )
            strip(path)


if __name__ == "__main__":
    main()
