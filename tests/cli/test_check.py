"""`blockdsl check`, and the options of `blockdsl generate` that mend what it finds."""

import json

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from blockdsl.api import CheckpointState
from blockdsl.cli import app
from tests import exported, small


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_model_without_findings(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(small.MODEL, path)
    done = run("check", path)
    assert done.exit_code == 0, done.output
    assert "would train: trains" in done.stdout
    assert "Nothing found." in done.stdout


def test_findings_that_change_nothing_exit_with_0():
    done = run("check", exported.path_of("shared", "dynamo"))
    assert done.exit_code == 0, done.output
    assert "renamed weights" in done.stdout
    assert "fixed batch size" in done.stdout
    assert "Red:" not in done.stdout


def test_findings_that_change_training_exit_with_1():
    done = run("check", exported.path_of("language_model", "dynamo"))
    assert done.exit_code == 1
    assert "merged" in done.stdout
    assert "Red: changes what is trained, or how." in done.stdout
    assert not done.stderr


def test_json():
    path = exported.path_of("language_model", "dynamo")
    done = run("check", path, "--json")
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert report["model"] == str(path)
    assert report["would_train"]
    assert report["changes_training"]
    assert report["summary"].startswith("trains ")
    first = report["findings"][0]
    assert set(first) == {"kind", "message", "fix", "tensors", "nodes", "changes_training"}
    assert first["kind"] == "merged weights"
    assert first["tensors"] == ["norms.0.weight"]
    assert "embedding.weight" in report["trained"] or "head.weight" in report["trained"]


def test_a_model_that_would_not_train(tmp_path):
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    values = [onnx.helper.make_tensor_value_info(n, 1, ["batch", 2]) for n in ("x", "y")]
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    path = tmp_path / "model.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)
    done = run("check", path)
    assert done.exit_code == 1
    assert "would not train: trains 0 of 0 tensors" in done.stdout


@pytest.mark.parametrize("content", [None, b"", b"not a model", b"\x08\x07\x12\x04text"])
def test_files_that_are_no_models(content, tmp_path):
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    for options in ([], ["--json"]):
        done = run("check", path, *options)
        assert done.exit_code == 1
        assert not done.stdout
        assert len(done.stderr.splitlines()) == 1
        assert "model.onnx" in done.stderr
        assert isinstance(done.exception, SystemExit)


def test_a_folder_is_no_model(tmp_path):
    done = run("check", tmp_path)
    assert done.exit_code == 1
    assert "is a folder, not a file" in done.stderr


def generate(tmp_path, *options):
    path = exported.path_of("language_model", "dynamo")
    return run("generate", path, "--loss", "mse", "--output", tmp_path / "run", *options)


def names(tmp_path):
    return {
        name for name, _ in CheckpointState.load_checkpoint(tmp_path / "run/checkpoint").parameters
    }


def test_generate_mends_all_that_check_finds(tmp_path):
    done = generate(tmp_path, "--separate-merged", "all", "--tie", "all")
    assert done.exit_code == 0, done.output
    assert not done.stderr
    sizes = [
        np.asarray(p.data).size
        for _, p in CheckpointState.load_checkpoint(tmp_path / "run/checkpoint").parameters
    ]
    assert sum(sizes) == exported.Golden("language_model", "evaluation").size


def test_generate_mends_what_is_named(tmp_path):
    report = json.loads(run("check", exported.path_of("language_model", "dynamo"), "--json").stdout)
    pair = next(f["tensors"] for f in report["findings"] if f["kind"] == "untied weights")
    done = generate(tmp_path, "--separate-merged", "norms.*", "--tie", ",".join(pair))
    assert done.exit_code == 0, done.output
    assert not done.stderr
    assert {"norms.0.weight", "norms.1.weight", pair[0]} <= names(tmp_path)
    assert pair[1] not in names(tmp_path)


def test_a_mistake_in_tie(tmp_path):
    done = generate(tmp_path, "--tie", "head.weight")
    assert done.exit_code == 1
    assert done.stderr == "--tie must be all or two names, FIRST,SECOND; got 'head.weight'.\n"
