"""A checkpoint knows which artifacts it belongs to.

After artifacts had been generated again in a folder, `blockdsl evaluate`, `export` and
`Trainer.resume` used to take the checkpoints of the run before, without a word.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from typer.testing import CliRunner

import blockdsl
from blockdsl import optim
from blockdsl.api import CheckpointState, Module
from blockdsl.artifacts import LossType, OptimType
from blockdsl.backend import checkpoint as codec
from blockdsl.backend.identity import identity_of, set_identity
from blockdsl.cli import app
from blockdsl.errors import BlockWarning, CheckpointError, CheckpointNotFoundError
from blockdsl.trainer import Trainer, latest_checkpoint
from tests import small

ROOT = Path(__file__).parents[2]


@pytest.fixture
def data():
    return blockdsl.Batches(*small.data(), size=8)


def generate(folder, forward=None, **settings):
    settings = {
        "loss": LossType.MSELoss,
        "optimizer": OptimType.AdamW,
        "additional_output_names": [small.Y],
        **settings,
    }
    blockdsl.artifacts.generate_artifacts(
        forward or small.MODEL, artifact_directory=folder, **settings
    )
    return folder


def train(folder, data, engine, **settings):
    trainer = Trainer(folder, engine=engine, **settings)
    trainer.fit(data, epochs=2, learning_rate=0.02, checkpoint_every=10, progress=False)
    return trainer


def other_values():
    """The same model with other first values."""
    changed = onnx.ModelProto.FromString(small.MODEL.SerializeToString())
    for tensor in changed.graph.initializer:
        value = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array(value + np.float32(0.25), tensor.name))
    return changed


AGAIN = {
    # what is generated into the folder of a trained run; whether the old run may be finished
    "the same": ({}, True),
    "other first values": ({"forward": other_values()}, False),
    "another loss": ({"loss": LossType.L1Loss}, False),
    "another optimizer": ({"optimizer": optim.AdamW(weight_decay=0.1)}, False),
    "a frozen parameter": ({"frozen_params": ["*.bias"]}, False),
    "another output": ({"additional_output_names": []}, False),
}


@pytest.mark.parametrize("prefix", ["", "mine-"])
@pytest.mark.parametrize("again", AGAIN)
def test_artifacts_are_generated_again(again, prefix, tmp_path, data, engine):
    settings, same = AGAIN[again]
    folder = generate(tmp_path / "run", prefix=prefix)
    old = train(folder, data, engine, prefix=prefix)
    last = folder / "checkpoints" / f"{prefix}step-00000024"
    assert latest_checkpoint(folder, prefix) == last
    assert Trainer.resume(folder, prefix=prefix, engine=engine).step == 24
    generate(folder, prefix=prefix, **settings)
    assert latest_checkpoint(folder, prefix) is None
    words = (
        rf"The checkpoints in '.*checkpoints', {prefix}step-00000024 the last of them, were "
        r"written before the artifacts in '.*run' were generated again, and are set aside\. To "
        r"train the new artifacts, write Trainer\('.*run'\) \(`blockdsl train` without --resume\); "
    )
    words += "to finish their run all the same, Trainer" if same else "to begin with what they"
    with pytest.raises(CheckpointNotFoundError, match=words):
        Trainer.resume(folder, prefix=prefix, engine=engine)
    if same:
        resumed = Trainer.resume(folder, last, prefix=prefix, engine=engine)
        for name, value in small.values(old).items():
            assert np.array_equal(small.values(resumed)[name], value)
    else:
        refusal = r"belongs to other artifacts .* begin a run .*Trainer\('.*', checkpoint='.*24'\)"
        with pytest.raises(CheckpointError, match=refusal):
            Trainer.resume(folder, last, prefix=prefix, engine=engine)
    train(folder, data, engine, prefix=prefix)  # from the new artifacts' own checkpoint
    assert latest_checkpoint(folder, prefix) == last
    assert Trainer.resume(folder, prefix=prefix, engine=engine).step == 24


def test_the_newest_of_the_artifacts_themselves(tmp_path, data, engine):
    """A checkpoint of others that was written later is passed over."""
    folder = generate(tmp_path / "run")
    train(folder, data, engine)
    others = train(generate(tmp_path / "other", other_values()), data, engine)
    others.save(folder / "checkpoints" / "step-00000099")
    assert latest_checkpoint(folder).name == "step-00000024"
    assert Trainer.resume(folder, engine=engine).step == 24


@pytest.mark.parametrize("move", [shutil.copytree, shutil.move])
def test_folders_are_copied_and_renamed(move, tmp_path, data, engine):
    folder = generate(tmp_path / "run")
    train(folder, data, engine)
    move(folder, tmp_path / "elsewhere")
    assert Trainer.resume(tmp_path / "elsewhere", engine=engine).step == 24


def test_checkpoints_that_do_not_know(tmp_path, data, engine):
    """Those of onnxruntime-training, and older ones."""
    folder = generate(tmp_path / "run")
    train(folder, data, engine)
    for path in sorted((folder / "checkpoints").iterdir()):
        held = codec.load(path)
        assert held.artifacts
        held.artifacts = ""
        codec.save(held, path)
    generate(folder, other_values())
    assert Trainer.resume(folder, engine=engine).step == 24


def test_models_that_do_not_know(tmp_path, data, engine):
    """Those of onnxruntime-training."""
    folder = generate(tmp_path / "run")
    train(folder, data, engine)
    model = onnx.load(folder / "training_model.onnx")
    del model.metadata_props[:]
    onnx.save(model, folder / "training_model.onnx")
    resumed = Trainer.resume(folder, engine=engine)
    assert resumed.step == 24
    resumed.save(tmp_path / "saved")
    assert codec.load(tmp_path / "saved").artifacts  # what it was


def model_of(first, second):
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        net (float[batch, 4] x) => (float[batch, 4] y) {{
            h = MatMul (x, {first})
            t = Tanh (h)
            y = MatMul (t, {second})
        }}"""
    )


def with_weights(first, second):
    model = model_of(first, second)
    for seed, name in enumerate("ab"):
        value = np.random.default_rng(seed).normal(size=(4, 4)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    return model


MIXED = {
    "swapped names": (with_weights("a", "b"), with_weights("b", "a")),
    "other first values": (small.MODEL, other_values()),
}


@pytest.mark.parametrize("kind", MIXED)
def test_a_module_over_the_checkpoint_of_others(kind, tmp_path, engine):
    """Names and types fit: the values are taken, and a warning says whose they are."""
    for name, model in zip(("one", "two"), MIXED[kind], strict=True):
        generate(tmp_path / name, model, additional_output_names=None)
    state = CheckpointState.load_checkpoint(tmp_path / "one" / "checkpoint", engine=engine)
    assert len(state.properties) == 0
    words = r"The checkpoint belongs to other artifacts than '.*two.training_model\.onnx'"
    with pytest.warns(BlockWarning, match=words):
        Module(tmp_path / "two" / "training_model.onnx", state)
    CheckpointState.save_checkpoint(state, tmp_path / "two" / "taken")
    again = CheckpointState.load_checkpoint(tmp_path / "two" / "taken", engine=engine)
    Module(tmp_path / "two" / "training_model.onnx", again)  # it belongs to it now
    with pytest.warns(BlockWarning, match=words):
        Trainer(tmp_path / "two", checkpoint=tmp_path / "one" / "checkpoint", engine=engine)


def test_all_files_say_so(tmp_path, data, engine):
    folder = generate(tmp_path / "run", nominal_checkpoint=True)
    names = ("training_model", "eval_model", "optimizer_model")
    found = {identity_of(onnx.load(folder / f"{name}.onnx")) for name in names}
    found |= {codec.load(folder / name).artifacts for name in ("checkpoint", "nominal_checkpoint")}
    (identity,) = found
    assert identity.endswith("/0")
    nominal = CheckpointState.load_checkpoint(folder / "nominal_checkpoint", engine=engine)
    Module(folder / "training_model.onnx", nominal)
    trainer = train(folder, data, engine)
    written = list((folder / "checkpoints").iterdir())
    assert len(written) == 3
    assert {codec.load(path).artifacts for path in written} == {identity}
    trainer.export(tmp_path / "exported.onnx", [small.Y])
    assert identity_of(onnx.load(tmp_path / "exported.onnx")) == ""
    generate(folder)
    assert identity_of(onnx.load(folder / "eval_model.onnx")) == identity[:-1] + "1"
    marked = onnx.ModelProto.FromString(small.MODEL.SerializeToString())
    set_identity(marked, "another/7")  # as in a model that is made of artifacts
    generate(tmp_path / "more", marked)
    (entry,) = onnx.load(tmp_path / "more" / "eval_model.onnx").metadata_props
    assert entry.value == identity


def test_the_same_in_every_process(tmp_path):
    """Fresh folders get the same files, byte by byte."""
    code = "import sys; from tests import small; small.generate(sys.argv[1])"
    for seed in "01":
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code, str(tmp_path / seed)]
        subprocess.run(command, env=environment, check=True, timeout=300)
    digests = [
        {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (tmp_path / seed).iterdir()}
        for seed in "01"
    ]
    assert digests[0] == digests[1]


@pytest.mark.filterwarnings("always")
def test_the_command_line(tmp_path, data, monkeypatch, engine):
    monkeypatch.chdir(tmp_path)
    x, target = small.data()
    np.savez("data.npz", x=x, target=target)
    generate("run")
    train("run", data, engine)

    def run(command, *options):
        done = CliRunner().invoke(app, [command, "run", "--engine", engine, *options])
        assert done.exit_code == 0, done.output
        return done

    evaluated = run("evaluate", "--data", "data.npz")
    assert evaluated.stdout.startswith("Step 24:")
    assert evaluated.stderr == ""
    generate("run")
    first = CheckpointState.load_checkpoint("run/checkpoint", engine=engine)
    words = "were written before the artifacts in run were generated again, and are set aside"
    evaluated = run("evaluate", "--data", "data.npz")
    assert evaluated.stdout.startswith("Step 0:")
    assert words in evaluated.stderr
    assert "--checkpoint run/checkpoints/step-00000024" in evaluated.stderr
    assert words in run("export", "--output", "exported.onnx").stderr
    initializers = onnx.load("exported.onnx").graph.initializer
    exported = {tensor.name: numpy_helper.to_array(tensor) for tensor in initializers}
    for name, parameter in first.parameters:
        np.testing.assert_array_equal(exported[name], parameter.data)
    named = run("evaluate", "--data", "data.npz", "--checkpoint", "run/checkpoints/step-00000024")
    assert named.stdout.startswith("Step 24:")
    options = ["train", "run", "--engine", engine, "--data", "data.npz", "--resume"]
    refused = CliRunner().invoke(app, options)
    assert refused.exit_code == 1
    assert words.replace(" run ", " 'run' ") in refused.stderr
    run("train", "--data", "data.npz", "--batch-size", "8")
    assert run("evaluate", "--data", "data.npz").stdout.startswith("Step 12:")
