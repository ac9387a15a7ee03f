"""Writes losses.json: what PyTorch says of losses and their gradients. Needs PyTorch; the tests do
not. Run it as `python tests/data/make_losses.py` when a row is added."""

import json
import warnings
from pathlib import Path

import numpy as np

RNG = np.random.default_rng(0)
REDUCTIONS = ("mean", "sum", "none")


def rows():
    x, t = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
    t[0, 0] = x[0, 0]
    t[2, 3] = x[2, 3] + 40
    for reduction in REDUCTIONS:
        yield "MSELoss", {"reduction": reduction}, x, t
        yield "L1Loss", {"reduction": reduction}, x, t
        yield "HuberLoss", {"reduction": reduction}, x, t
        yield "HuberLoss", {"reduction": reduction, "delta": 0.5}, x, t
        yield "SmoothL1Loss", {"reduction": reduction}, x, t
        yield "SmoothL1Loss", {"reduction": reduction, "beta": 0.3}, x, t

    p = RNG.dirichlet(np.ones(4), 3)
    p[1] = [0, 0.25, 0.75, 0]
    for reduction in (*REDUCTIONS, "batchmean"):
        yield "KLDivLoss", {"reduction": reduction}, np.log(RNG.dirichlet(np.ones(4), 3)), p
        log_p = np.log(RNG.dirichlet(np.ones(4), 3))
        yield "KLDivLoss", {"reduction": reduction, "log_target": True}, x, log_p

    logits = np.array([[-200, -20, -3, 0], [0.5, 3, 20, 200], [200, 0, -200, 100.0]])
    labels = np.array([[1, 0, 0.3, 1], [0.7, 1, 0, 1], [0, 0, 1, 1]])
    for reduction in REDUCTIONS:
        yield "BCEWithLogitsLoss", {"reduction": reduction}, logits, labels
        for name in ("weight", "pos_weight"):
            settings = {"reduction": reduction, name: [0.5, 1, 2, 3]}
            yield "BCEWithLogitsLoss", settings, logits, labels
        both = {"weight": [[0.5], [1], [2]], "pos_weight": [2, 3, 0.25, 1]}
        yield "BCEWithLogitsLoss", {"reduction": reduction, **both}, logits, labels

    for scores in (RNG.normal(size=(4, 3)), 200 * np.sign(RNG.normal(size=(4, 3)))):
        yield from class_rows(scores)
    for shape, axis in [
        ((4, 3), -1),
        ((2, 3, 5), None),
        ((2, 3, 2, 2), 1),
        ((2, 5, 3), -1),
        ((3, 2, 2), 0),
        ((2, 2, 3, 2), 2),
    ]:
        yield from class_rows(RNG.normal(size=shape), axis, few=True)


def class_rows(scores, axis=None, few=False):
    at = 1 if axis is None else axis % scores.ndim
    labels = RNG.integers(0, 3, np.delete(scores.shape, at))
    away = labels.copy()
    away.flat[1] = -100
    settings = {} if axis is None else {"axis": axis}
    weights = {"weight": [0.5, 1, 2.5]}
    for reduction in REDUCTIONS:
        settings["reduction"] = reduction
        for chosen in [{}] if few else [{}, weights]:
            for ignored in [{}] if few else [{}, {"ignore_index": 2}]:
                yield "CrossEntropyLoss", settings | chosen | ignored, scores, labels
                smooth = {"label_smoothing": 0.1}
                yield "CrossEntropyLoss", settings | chosen | ignored | smooth, scores, labels
        far = weights | {"ignore_index": -100}
        yield "CrossEntropyLoss", settings | far, scores, away
        yield "CrossEntropyLoss", settings | far | {"label_smoothing": 0.3}, scores, away
        yield "NLLLoss", settings | far, scores, away
        yield "NLLLoss", dict(settings), scores, labels


def outcome(name, settings, prediction, target):
    """The loss and the gradient of its sum."""
    import torch  # here, because pytest imports every file below tests

    settings = dict(settings)
    axis = settings.pop("axis", None)
    for key in ("weight", "pos_weight"):
        if key in settings:
            settings[key] = torch.tensor(settings[key], dtype=torch.float64)
    x = torch.tensor(prediction, requires_grad=True)
    scores = x if axis is None else x.movedim(axis, 1).contiguous()
    loss = getattr(torch.nn, name)(**settings)(scores, torch.tensor(target))
    loss.sum().backward()
    return loss.detach().numpy(), x.grad.numpy()


def rounded(array):
    return np.vectorize(lambda number: float(f"{number:.15g}"))(array).tolist()


def main():
    warnings.simplefilter("ignore")  # KLDivLoss has one about its "mean"
    written = []
    for name, settings, prediction, target in rows():
        prediction = prediction.round(6)
        if target.dtype.kind == "f":
            target = target.round(6)
        value, gradient = outcome(name, settings, prediction, target)
        written.append(
            {
                "loss": name,
                "arguments": settings,
                "prediction": prediction.tolist(),
                "target": target.tolist(),
                "value": rounded(value),
                "gradient": rounded(gradient),
            }
        )
    lines = ",\n".join(json.dumps(row) for row in written)
    Path(__file__).with_name("losses.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
