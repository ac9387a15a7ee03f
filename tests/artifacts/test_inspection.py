"""`blockdsl.inspect` on what PyTorch's two exporters make of freshly initialised modules.

A module that was exported with default arguments trained something else, without a word: layer
normalisations of ones as one, biases of zero not at all, batch normalisation folded away.
"""

import subprocess
import sys

import onnx
import pytest

import blockdsl
from blockdsl.errors import ArtifactError, ArtifactTypeError, ModelFileError
from tests import exported

MERGED, UNTIED, RENAMED = "merged weights", "untied weights", "renamed weights"
FOLDED = "folded BatchNormalization"
EVALUATION = "BatchNormalization in evaluation mode"
COMPUTED, DROPPED = "weights computed by the exporter", "dropped biases"

EXPECTED = {  # by module and way, the findings but for the fixed batch, and how many there are
    ("autoencoder", "dynamo"): {UNTIED: 1, RENAMED: 1},
    ("autoencoder", "legacy"): {UNTIED: 1, RENAMED: 1},
    ("groups", "dynamo"): {MERGED: 2, RENAMED: 1},
    ("groups", "legacy"): {MERGED: 2, RENAMED: 1},
    ("language_model", "dynamo"): {MERGED: 2, UNTIED: 1, RENAMED: 1},
    ("language_model", "legacy"): {MERGED: 2, UNTIED: 1, RENAMED: 1},
    ("pool", "dynamo"): {COMPUTED: 1, DROPPED: 1, RENAMED: 1},
    ("pool", "legacy"): {MERGED: 1, RENAMED: 1},
    ("residual", "dynamo"): {MERGED: 2, FOLDED: 1, EVALUATION: 1},
    ("residual", "dynamo_plain"): {EVALUATION: 1},
    ("residual", "legacy"): {MERGED: 2, FOLDED: 1, EVALUATION: 1, RENAMED: 1},
    ("shared", "dynamo"): {RENAMED: 1},
    ("shared", "legacy"): {RENAMED: 1},
    ("stack", "dynamo"): {MERGED: 4, DROPPED: 1, RENAMED: 1},
    ("stack", "legacy"): {MERGED: 4, RENAMED: 1},
    ("weight_norm", "dynamo"): {COMPUTED: 1, RENAMED: 1},
}


def kinds(report):
    found = {}
    for finding in report:
        if finding.kind != "fixed batch size":
            found[finding.kind] = found.get(finding.kind, 0) + 1
    return found


@pytest.mark.parametrize("way", exported.WAYS)
@pytest.mark.parametrize("name", exported.NAMES)
def test_findings(name, way):
    report = blockdsl.inspect(exported.path_of(name, way))
    assert kinds(report) == EXPECTED.get((name, way), {})
    assert report.would_train


@pytest.mark.parametrize("way", ["dynamo_plain", "legacy_plain"])
@pytest.mark.parametrize("name", exported.NAMES)
def test_plain_exports_train_all_parameters(name, way):
    # Group normalisations and a query that begin as ones and zeros were left as constants.
    report = blockdsl.inspect(exported.path_of(name, way))
    assert set(report.trained) == set(exported.Golden(name, "evaluation").gradients) or (
        # a tied weight and a layer with two names have one of these in the file
        name in ("language_model", "shared")
        and len(report.trained) == len(exported.Golden(name, "evaluation").gradients)
    )


def test_a_merged_weight_names_its_parts():
    report = blockdsl.inspect(exported.path_of("language_model", "dynamo"))
    finding = next(f for f in report if f.kind == MERGED and "weight" in f.tensors[0])
    assert finding.tensors == ("norms.0.weight",)
    assert "'norms.0.weight', 'norms.1.weight'. They would be trained as one." in finding.message
    assert finding.fix == (
        "Pass separate_merged=True to generate_artifacts, or optimize=False to torch.onnx.export."
    )
    assert finding.changes_training
    assert str(finding) == f"{finding.message} {finding.fix}"


def test_an_untied_weight_names_both():
    report = blockdsl.inspect(exported.path_of("language_model", "legacy"))
    finding = next(f for f in report if f.kind == UNTIED)
    kept, copy = finding.tensors
    assert kept == "embedding.weight"
    assert f"tie=[('embedding.weight', {copy!r})]" in finding.fix
    assert "do_constant_folding=False" in finding.fix


def test_batch_norms_say_which_mode_the_module_was_in():
    # The default exporter writes the form of evaluation for a module in training mode, too.
    for way, was_training in (("dynamo", False), ("dynamo_plain", True), ("legacy", False)):
        report = blockdsl.inspect(exported.path_of("residual", way))
        finding = next(f for f in report if f.kind == EVALUATION)
        assert finding.changes_training is was_training
        assert ("was in training mode" in finding.message) is was_training


def test_a_folded_batch_norm_says_how_to_export():
    for way in ("dynamo", "legacy"):
        report = blockdsl.inspect(exported.path_of("residual", way))
        finding = next(f for f in report if f.kind == FOLDED)
        assert "training=torch.onnx.TrainingMode.TRAINING" in finding.fix
        assert len(finding.nodes) == 1
        assert len(finding.tensors) == 2


def test_a_computed_weight_names_what_is_lost():
    report = blockdsl.inspect(exported.path_of("weight_norm", "dynamo"))
    finding = next(f for f in report if f.kind == COMPUTED)
    assert "'conv.parametrizations.weight.original0'" in finding.message
    assert finding.fix == "Pass optimize=False to torch.onnx.export."


def test_a_dropped_bias_is_named():
    report = blockdsl.inspect(exported.path_of("stack", "dynamo"))
    finding = next(f for f in report if f.kind == DROPPED)
    assert "left out 1 biases that were zero, 'head.bias' for one" in finding.message


def test_findings_that_change_training_come_first():
    report = blockdsl.inspect(exported.path_of("language_model", "dynamo"))
    marks = [finding.changes_training for finding in report]
    assert marks == sorted(marks, reverse=True)
    assert report.changes_training
    text = str(report)
    assert text.startswith("The model trains: it trains")
    assert f"! {MERGED}: " in text
    assert f"- {RENAMED}: " in text


def test_the_model_is_not_changed():
    model = exported.load("language_model", "dynamo")
    before = model.SerializeToString()
    blockdsl.inspect(model)
    assert model.SerializeToString() == before


def test_no_runtime_is_needed():
    path = exported.path_of("language_model", "dynamo")
    code = f"import sys, blockdsl; blockdsl.inspect({str(path)!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"onnxruntime", "torch"} & {name.split(".")[0] for name in done.stdout.split()}


def test_bad_models(tmp_path):
    with pytest.raises(ModelFileError, match="does not exist"):
        blockdsl.inspect(tmp_path / "missing.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(ModelFileError, match="is not an ONNX model"):
        blockdsl.inspect(tmp_path / "text.onnx")
    with pytest.raises(ArtifactTypeError, match="either a string or an ONNX ModelProto"):
        blockdsl.inspect(7)
    with pytest.raises(ArtifactError, match="has no outputs"):
        blockdsl.inspect(onnx.ModelProto(graph=onnx.GraphProto(name="empty")))
