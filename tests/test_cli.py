"""The command line, from a model to a trained one, and how it tells a mistake."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from typer.testing import CliRunner

import blockdsl
from blockdsl.cli import app
from tests import small

ROOT = Path(__file__).parents[1]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with a model, data and a loss of the user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    onnx.save(small.MODEL, "model.onnx")
    for name, seed in (("train", 0), ("test", 1)):
        x, target = small.data(seed=seed)
        np.savez(f"{name}.npz", x=x, target=target, index=np.arange(len(x)))
    return tmp_path


def run(*arguments, ok=True):
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    if ok:
        assert done.exit_code == 0, done.output
        return done.stdout
    assert done.exit_code == 1, done.output
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def generate(*more):
    return run(
        *("generate", "model.onnx", "--output", "run", "--loss", "mse"),
        *("--output-name", small.Y, *more),
    )


def train(*more):
    options = ("--batch-size", 8, "--learning-rate", 0.02)
    return run("train", "run", "--data", "train.npz", *options, *more)


def test_whole_path(here, engine):
    generate()
    shown = train(
        *("--engine", engine, "--validation", "test.npz", "--epochs", 10, "--eval-every", 30),
        *("--warmup-steps", 5, "--decay", "--gradient-accumulation", 2, "--checkpoint-every", 25),
    )
    assert "60/60" in shown
    assert "step 30: loss" in shown
    last = re.search(r"Step 60: loss (\S+)\. Validation: loss (\S+)\. ", shown)
    assert float(last[2]) < 0.1
    assert sorted(os.listdir("run/checkpoints")) == [f"step-000000{n}" for n in (25, 50, 60)]

    evaluated = run("evaluate", "run", "--data", "test.npz", "--engine", engine)
    assert evaluated == f"Step 60: loss {last[2]}\n"
    start = run("evaluate", "run", "--data", "test.npz", "--checkpoint", "run/checkpoint")
    assert start.startswith("Step 0: loss ")

    assert small.Y in run("export", "run", "-o", "trained.onnx", "--engine", engine)
    session = onnxruntime.InferenceSession("trained.onnx", providers=["CPUExecutionProvider"])
    x, target = small.data(seed=1)
    (y,) = session.run(None, {"x": x})
    assert np.mean((y - target) ** 2) == pytest.approx(float(last[2]), rel=1e-3)


def test_resume_goes_on_where_training_stopped(here, engine):
    generate()
    more = ("--epochs", 4, "--engine", engine)
    train("--checkpoint-every", 20, "--seed", 3, *more)
    whole = Path("run/checkpoints/step-00000048").read_bytes()
    shown = train("--checkpoint", "run/checkpoints/step-00000020", *more)
    assert shown.endswith("The last checkpoint is in run/checkpoints.\n")
    assert Path("run/checkpoints/step-00000048").read_bytes() == whole


@pytest.mark.parametrize(
    ("loss", "optimizer"),
    [
        ("mse", "adamw"),
        ("L1", "sgd"),
        ("bce", "blockdsl.optim:SGD(momentum=0.9)"),
        ("blockdsl.loss:HuberLoss(delta=2.0)", "none"),
        ("mine:Scaled(3, power=2)", "adamw"),
        ("mine:Plain", "adamw"),
    ],
)
def test_losses_and_optimizers(here, loss, optimizer):
    Path("mine.py").write_text(
        "import blockdsl\n"
        "class Scaled(blockdsl.Block):\n"
        "    def __init__(self, scale, power):\n"
        "        self.scale, self.power = scale, power\n"
        "    def build(self, y):\n"
        "        error = y - blockdsl.input_like(y, 'target')\n"
        "        return self.scale * (error ** self.power).mean()\n"
        "class Plain(blockdsl.Block):\n"
        "    def build(self, y):\n"
        "        return y.square().mean()\n"
    )
    run("generate", "model.onnx", "--loss", loss, "--optimizer", optimizer)
    assert Path("artifacts/optimizer_model.onnx").exists() == (optimizer != "none")
    sys.modules.pop("mine", None)


def test_cross_entropy_and_options_of_generate(here):
    run(
        *("generate", "model.onnx", "--loss", "cross-entropy", "--loss-input", small.Y),
        *("--train", "*Linear_1*", "--freeze", "*Linear.*", "--prefix", "my-", "--nominal"),
        *("--ort", "--output", "there/run"),
    )
    models = [f"{kind}_model.{end}" for kind in ("training", "eval", "optimizer")
              for end in ("onnx", "ort")]  # fmt: skip
    expected = [f"my-{name}" for name in ("checkpoint", "nominal_checkpoint", *models)]
    assert sorted(os.listdir("there/run")) == sorted(expected)
    shown = run("info", "there/run")
    assert "parameters: 2 trained, 2 frozen, 58 values" in shown
    assert re.search(r"labels +int64\[batch\]", shown)
    assert re.search(r"Net/Linear_1\.weight +float32\[8, 2\] +trained", shown)
    assert re.search(r"Net/Linear\.bias +float32\[8\] +frozen", shown)
    assert "parameters: 2 trained, 2 frozen (nominal: no values)" in run(
        "info", "there/run/my-nominal_checkpoint"
    )


def test_info(here):
    generate()
    train()
    shown = run("info")
    for fact in ("blockdsl", "onnxruntime", "engine ", "providers", "opset", "tensorboardX"):
        assert fact in shown
    model = run("info", "model.onnx")
    assert "opset com.microsoft 1, ai.onnx 17; IR version 8" in model
    assert "x  float32[batch, 4]" in model
    assert "initializers: 4, 58 values" in model
    folder = run("info", "run")
    assert "AdamWOptimizer" in folder
    assert re.search(r"loss\n +\S+ +float32\[\]", folder)
    checkpoint = run("info", "run/checkpoints/step-00000012")
    assert re.search(r"step +12\n", checkpoint)
    assert re.search(r"epoch +1\n", checkpoint)


def test_tensorboard(here):
    pytest.importorskip("tensorboardX")
    generate()
    train("--log-dir", "logs", "--validation", "test.npz")
    assert any(Path("logs").glob("events.*"))


def test_tensorboard_in_a_file(here):
    pytest.importorskip("tensorboardX")
    generate()
    Path("logs").write_text("")
    told = run("train", "run", "--data", "train.npz", "--log-dir", "logs", ok=False)
    assert "Nothing can be written to 'logs': " in told


def test_tensorboard_is_missing(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    generate()
    told = run("train", "run", "--data", "train.npz", "--log-dir", "logs", ok=False)
    assert "--log-dir needs tensorboardX: `pip install 'blockdsl[tensorboard]'`" in told


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("generate gone.onnx --loss mse", "The model 'gone.onnx' does not exist."),
        ("generate train.npz --loss mse", "'train.npz' is not an ONNX model"),
        ("generate model.onnx --loss mes", "neither one of mse, .* Did you mean 'mse'"),
        ("generate model.onnx --loss gone:X", "--loss: 'gone' cannot be imported"),
        ("generate model.onnx --loss blockdsl.loss:MSELos", "Did you mean 'MSELoss'"),
        ("generate model.onnx --loss blockdsl.loss:MSELoss(x)", "not of the form Class"),
        ("generate model.onnx --loss blockdsl.loss:MSELoss(1,2,3)", "cannot be made"),
        ("generate model.onnx --loss blockdsl.loss:MSELoss('men')", "Reduction men not supp"),
        ("generate model.onnx --loss pathlib:Path", "not a class derived from blockdsl.Block"),
        ("generate model.onnx --loss mse --train fc9.*", r"Node arg fc9\.\* is not found"),
        ("train gone --data train.npz", "'gone' has no training_model.onnx"),
        ("train run --data gone.npz", "The file 'gone.npz' does not exist"),
        ("train run --data model.onnx", r"plain arrays\. Write one with numpy.savez\(path, x"),
        ("train run --data one.npy", "holds a single array without a name"),
        ("train run --data half.npz", "half.npz' has x but not target"),
        ("train run --data cut.npz", r"cut.npz' is not an \.npz file of plain arrays"),
        ("train run --data objects.npz", r"objects.npz' is not an \.npz file of plain arrays"),
        ("train run --data train.npz --resume", "There is no checkpoint in 'run/checkpoints'"),
        ("train run --data train.npz --checkpoint model.onnx", "an ONNX model; the checkpoint is"),
        ("train run --data train.npz --engine fast", "There is no engine engine='fast'"),
        ("evaluate run --data train.npz --device tpu", "Unsupported device type: 'tpu'"),
        ("export run -o m.onnx --output-names nope", "nope"),
        ("export run -o m.onnx --output-name nope", "nope"),
        ("info gone", "does not exist"),
        ("info .", "has no training_model.onnx"),
        ("info checkpoints", r"checkpoints and no .*`blockdsl info checkpoints/step-00000002`"),
    ],
)
def test_mistakes(here, command, message):
    generate()
    x, _ = small.data()
    np.save("one.npy", x)
    np.savez("half.npz", x=x)
    Path("checkpoints").mkdir()
    for step in (1, 2):
        shutil.copy("run/checkpoint", f"checkpoints/step-{step:08d}")
    np.savez("objects.npz", x=x.astype(object), target=x)
    Path("cut.npz").write_bytes(Path("half.npz").read_bytes()[:100])
    assert re.search(message, run(*command.split(), ok=False))


def test_export_without_an_eval_model(here, engine):
    command = "generate model.onnx --loss mse --output run --output-name"
    run(*command.split(), small.Y)
    Path("run", "eval_model.onnx").unlink()
    assert small.Y in run("export", "run", "-o", "m.onnx", "--engine", engine)
    assert [o.name for o in onnx.load("m.onnx").graph.output] == [small.Y]


def test_nothing_to_export_by_default(here):
    run("generate", "model.onnx", "--loss", "mse", "--output", "run")
    assert "with --output-name;" in run("export", "run", "-o", "m.onnx", ok=False)


@pytest.mark.filterwarnings("default")
def test_a_warning_is_a_line_too(here):
    Path("warns.py").write_text(
        "import warnings, blockdsl\n"
        "class Loss(blockdsl.Block):\n"
        "    def build(self, y):\n"
        "        warnings.warn('mind the gap', blockdsl.BlockWarning, stacklevel=1)\n"
        "        return y.square().mean()\n"
    )
    done = CliRunner().invoke(app, ["generate", "model.onnx", "--loss", "warns:Loss"])
    assert done.exit_code == 0
    assert done.stderr == "mind the gap\n"


def test_debug_shows_where_an_error_comes_from(here):
    done = CliRunner().invoke(app, ["--debug", "info", "gone"])
    assert isinstance(done.exception, blockdsl.BlockError)


def test_usage_error():
    done = CliRunner().invoke(app, ["train"])
    assert done.exit_code == 2


def test_version():
    assert run("--version") == f"blockdsl {blockdsl.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "stream", "text"),
    [
        (["--version"], 0, "stdout", "blockdsl "),
        (["info", "gone"], 1, "stderr", "The model 'gone' does not exist.\n"),
    ],
)
def test_as_a_module(tmp_path, arguments, code, stream, text):
    done = subprocess.run(
        [sys.executable, "-m", "blockdsl", *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code
    assert getattr(done, stream).startswith(text)
