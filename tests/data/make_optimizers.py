"""Write optimizers.json: what PyTorch's optimizers make of some parameters, step by step.

Run it with torch installed: `python tests/data/make_optimizers.py`. The tests need the file alone.
"""

import json
from pathlib import Path

import numpy as np
import torch

NAMES = {"fc.weight": (2, 3), "fc.bias": (3,), "scale": ()}
RATES = [0.125, 0.125, 0.0625, 0.25, 0.03125]  # exact in float32, in which models take the rate
ADAMW = {"eps": 1e-8, "mode": "torch"}
ROWS = [
    ("AdamW", {**ADAMW, "weight_decay": 0.25}),
    ("AdamW", {**ADAMW, "weight_decay": 0.0, "betas": [0.5, 0.75]}),
    ("AdamW", {**ADAMW, "weight_decay": 0.25, "eps": 0.5}),
    ("AdamW", {**ADAMW, "weight_decay": 0.25, "clip_grad": 1.5}),
    ("AdamW", {**ADAMW, "weight_decay": 0.25, "weight_decay_groups": {"*.bias": 0.0, "sc*": 0.5}}),
    ("SGD", {}),
    ("SGD", {"clip_grad": 1.5}),
    ("SGD", {"clip_grad": 1000.0}),
    ("SGD", {"momentum": 0.75}),
    ("SGD", {"momentum": 0.75, "nesterov": True}),
    ("SGD", {"momentum": 0.75, "dampening": 0.5}),
    ("SGD", {"weight_decay": 0.25}),
    ("SGD", {"momentum": 0.75, "dampening": 0.25, "weight_decay": 0.25, "clip_grad": 1.5}),
    ("SGD", {"momentum": 0.75, "nesterov": True, "weight_decay_groups": {"*.weight": 0.5}}),
]


def groups(parameters, arguments):
    """PyTorch's parameter groups; the first glob that fits counts, as in blockdsl."""
    from fnmatch import fnmatchcase

    globs = arguments.pop("weight_decay_groups", {})
    rest = arguments.get("weight_decay", 0.0)
    return [
        {
            "params": [parameter],
            "weight_decay": next((d for g, d in globs.items() if fnmatchcase(name, g)), rest),
        }
        for name, parameter in parameters.items()
    ]


def values(start, gradients, name, arguments):
    """The parameters after each step."""
    arguments = dict(arguments)
    arguments.pop("mode", None)
    max_norm = arguments.pop("clip_grad", None)
    parameters = {n: torch.tensor(v, requires_grad=True) for n, v in start.items()}
    grouped = groups(parameters, arguments)
    optimizer = getattr(torch.optim, name)(grouped, lr=1.0, **arguments)
    after = []
    for rate, step in zip(RATES, gradients, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for parameter, gradient in zip(parameters.values(), step.values(), strict=True):
            parameter.grad = torch.tensor(gradient)
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters.values(), max_norm)
        optimizer.step()
        after.append({n: p.detach().numpy().tolist() for n, p in parameters.items()})
    return after


def main():
    """Write the file."""
    rng = np.random.default_rng(0)

    def drawn():
        return {n: np.asarray(rng.standard_normal(s).round(4)) for n, s in NAMES.items()}

    start, gradients = drawn(), [drawn() for _ in RATES]
    found = {
        "rates": RATES,
        "parameters": {n: v.tolist() for n, v in start.items()},
        "gradients": [{n: v.tolist() for n, v in step.items()} for step in gradients],
        "rows": [
            {"optimizer": name, "arguments": a, "values": values(start, gradients, name, a)}
            for name, a in ROWS
        ],
    }
    Path(__file__).with_name("optimizers.json").write_text(json.dumps(found) + "\n", "utf-8")


if __name__ == "__main__":
    main()
