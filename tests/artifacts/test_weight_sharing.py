"""`separate_merged` and `tie`: what the exporter merged or took apart trains as in the module."""

import re
import warnings

import numpy as np
import onnx
import pytest

import blockdsl
from blockdsl.errors import ArtifactError, ArtifactTypeError, BlockWarning, UnknownNameError
from tests import exported
from tests.runs import Run, generate

MENDED = [  # the module is complete in such a file, once its weights are taken apart and tied
    *[(name, way) for name in ("language_model", "autoencoder") for way in ("dynamo", "legacy")],
    *[(name, way) for name in ("groups", "shared") for way in ("dynamo", "legacy")],
    ("stack", "legacy"),
]


def gradients(folder, engine, golden, model):
    """The loss, a mean of squares, and its gradients."""
    run = Run(folder, engine)
    shape = [d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim]
    target = np.zeros(shape, np.float32)
    loss = float(np.asarray(run.module(golden.x, target)).reshape(()))
    return loss, {n: p.grad.copy() for n, p in run.state.parameters if p.requires_grad}


@pytest.mark.parametrize(("name", "way"), MENDED, ids=map("-".join, MENDED))
def test_gradients_are_those_of_the_module(name, way, engine, tmp_path):
    model, golden = exported.load(name, way), exported.Golden(name, "evaluation")
    generate(tmp_path, model, separate_merged=True, tie=True)
    golden.check(*gradients(tmp_path, engine, golden, model))


PLAIN = [
    (name, way)
    for name in exported.NAMES
    for way in ("dynamo_plain", "legacy_plain")
    # Dropout draws other masks than PyTorch's; axes of the other are made by a Range of Constants.
    if name != "shared" and (name, way) != ("groups", "dynamo_plain")
]


@pytest.mark.parametrize(("name", "way"), PLAIN, ids=map("-".join, PLAIN))
def test_gradients_of_plain_exports(name, way, engine, tmp_path):
    model, golden = exported.load(name, way), exported.Golden(name, "training")
    if (name, way) == ("residual", "dynamo_plain"):
        for node in model.graph.node:
            if node.op_type == "BatchNormalization":
                node.attribute.append(onnx.helper.make_attribute("training_mode", 1))
                node.output.extend([f"{node.name}_mean", f"{node.name}_var"])
    generate(tmp_path, model)
    golden.check(*gradients(tmp_path, engine, golden, model))


@pytest.mark.parametrize("way", ["dynamo", "legacy"])
def test_weights_in_a_file_of_their_own(way, engine, tmp_path, monkeypatch):
    name = "language_model"
    model, golden = exported.load(name, way), exported.Golden(name, "evaluation")
    path = tmp_path / "forward.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    monkeypatch.setattr("blockdsl.backend.weights._READ_BELOW", 0)  # map the small ones, too
    generate(tmp_path / "run", path, separate_merged=True, tie=True)
    golden.check(*gradients(tmp_path / "run", engine, golden, model))


def test_copies_are_named_after_the_module(tmp_path):
    generate(tmp_path, exported.load("language_model", "dynamo"), separate_merged=True, tie=True)
    state = blockdsl.api.CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    names = {name for name, _ in state.parameters}
    assert {"norms.0.weight", "norms.1.weight", "norms.0.bias", "norms.1.bias"} <= names


@pytest.mark.parametrize("way", ["dynamo", "legacy"])
def test_some_may_be_named(way, tmp_path):
    model = exported.load("language_model", way)
    with pytest.warns(BlockWarning, match="'norms.0.bias' stands for 2 tensors"):
        generate(tmp_path, model, separate_merged=["norms.*.weight"], tie=True)
    state = blockdsl.api.CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    names = {name for name, _ in state.parameters}
    assert {"norms.0.weight", "norms.1.weight", "norms.0.bias"} <= names
    assert "norms.1.bias" not in names


def test_a_pair_may_be_named(tmp_path):
    model = exported.load("autoencoder", "dynamo")
    report = blockdsl.inspect(model)
    pair = next(f.tensors for f in report if f.kind == "untied weights")
    generate(tmp_path, model, tie=[pair])
    state = blockdsl.api.CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    assert {name for name, _ in state.parameters} == {pair[0], "bias"}


WARNED = {
    "language_model": ["norms.0.weight' stands for", "norms.0.bias' stands for", "hold the same"],
    "residual": ["before.weight' stands for", "before.bias' stands for", "folded BatchNorm"],
    "weight_norm": ["does not have the parameters 'conv.parametrizations"],
    "groups": ["stands for 2 tensors", "stands for 2 tensors"],
}


@pytest.mark.parametrize("name", WARNED)
def test_generate_warns_of_what_changes_training(name, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        generate(tmp_path, exported.load(name, "dynamo"))
    texts = [str(w.message) for w in caught if issubclass(w.category, BlockWarning)]
    assert len(texts) == len(WARNED[name])
    for part, text in zip(WARNED[name], texts, strict=True):
        assert part in text
    assert {w.filename for w in caught} == {generate.__code__.co_filename}


def test_what_is_not_trained_is_not_warned_of(tmp_path):
    model = exported.load("language_model", "dynamo")
    generate(tmp_path, model, requires_grad=["layers.*.bias"])


MISTAKES = [
    ({"separate_merged": ["nomrs.0.weight"]}, UnknownNameError, "Did you mean 'norms.0.weight'"),
    ({"separate_merged": ["layers.0.bias"]}, ArtifactError, "is read by one module alone"),
    ({"separate_merged": 3}, ArtifactTypeError, "must be True or a list of names and globs, got 3"),
    ({"tie": 3}, ArtifactTypeError, "must be True or a list of pairs of names"),
    ({"tie": [("a",)]}, ArtifactTypeError, "must be True or a list of pairs of names"),
    ({"tie": [("head.weight", "x")]}, UnknownNameError, "'x' is not a float initializer"),
    (
        {"tie": [("layers.0.bias", "norms.0.weight")]},
        ArtifactError,
        "'layers.0.bias' of shape (6,) and 'norms.0.weight' of shape (6,) are not equal",
    ),
]


@pytest.mark.parametrize(("settings", "kind", "text"), MISTAKES, ids=lambda v: str(v)[:40])
def test_mistakes(settings, kind, text, tmp_path):
    with pytest.raises(kind, match=re.escape(text)):
        generate(tmp_path, exported.load("language_model", "dynamo"), **settings)
    assert not list(tmp_path.iterdir())
