"""Every mistake gets one error of ours that says what is wrong, and leaves nothing behind."""

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import blockdsl
from blockdsl import Batches, Trainer, loss, op, optim
from blockdsl.api import CheckpointState, LinearLRScheduler, Module, Optimizer
from blockdsl.artifacts import (
    LossType,
    generate_artifacts,
    load_checkpoint_to_model,
    save_checkpoint,
)
from blockdsl.errors import (
    ArtifactError,
    BlockError,
    CheckpointError,
    DataError,
    EngineError,
    FeedError,
    GradientError,
    GraphError,
    ModelFileError,
    OpError,
    OptimizerError,
    StateError,
    UnknownNameError,
)
from tests import small
from tests.runs import forward, weight


def refuses(kind, message, call, *args, **settings):
    """Whether a call raises this error, and no other kind on the way to the user."""
    with pytest.raises(kind, match=message) as caught:
        call(*args, **settings)
    assert isinstance(caught.value, BlockError)


# -- generating artifacts ----------------------------------------------------------------------


def linear(**changes):
    """x [batch, 4] @ w + b -> y, with something about it changed."""
    model = forward(lambda x: x @ weight("w", 4, 2) + weight("b", 2), ("batch", 4))
    for field, edit in changes.items():
        edit(getattr(model.graph, field))
    return model


def append(**node):
    return lambda nodes: nodes.append(helper.make_node(**node))


MODELS = {
    "nothing": (onnx.ModelProto(), ArtifactError, "The model has no outputs"),
    "no outputs": (linear(output=lambda f: f.pop()), ArtifactError, "The model has no outputs"),
    "unknown output": (
        linear(output=lambda f: f.add().CopyFrom(helper.make_tensor_value_info("z", 1, [1]))),
        BlockError,
        "z",
    ),
    "unknown input of a node": (
        linear(node=lambda f: f[0].input.__setitem__(1, "weight")),
        GraphError,
        "The forward model is not valid ONNX: .*'weight'",
    ),
    "unknown operator": (
        linear(node=lambda f: setattr(f[0], "op_type", "MatMull")),
        GraphError,
        "The forward model is not valid ONNX: No Op registered for MatMull",
    ),
    "shapes that do not fit": (
        linear(
            initializer=lambda f: f[0].CopyFrom(numpy_helper.from_array(np.ones((3, 2), "f"), "w"))
        ),
        GraphError,
        "Incompatible dimensions",
    ),
    "a damaged weight": (
        linear(initializer=lambda f: setattr(f[0], "raw_data", b"123")),
        GraphError,
        r"The tensor 'w' is damaged: its values do not fill the shape \(4, 2\)\. Write it anew",
    ),
    "a damaged shape": (
        linear(
            initializer=lambda f: f.add(name="to", data_type=7, dims=[2], raw_data=b"123"),
        ),
        GraphError,
        r"The tensor 'to' is damaged: its values do not fill the shape \(2,\)\. Write it anew",
    ),
    "written twice": (
        linear(node=append(op_type="Neg", inputs=["x"], outputs=["Add"])),
        BlockError,
        "single static assignment",
    ),
    "weights in another file": (
        linear(initializer=lambda f: onnx.external_data_helper.set_external_data(f[0], "w.bin")),
        ArtifactError,
        "The values of 'w' lie outside the model, in 'w.bin'. Pass the path",
    ),
}


class Whole(blockdsl.Block):
    """An integer loss."""

    def build(self, y):
        return y.sum().cast(np.int64)


class Returns(blockdsl.Block):
    def __init__(self, what):
        self.what = what

    def build(self, y):
        return self.what


ARGUMENTS = [
    ({"requires_grad": 5}, TypeError, "requires_grad: \\[5\\]. Expected a list of strings"),
    ({"requires_grad": [["w"]]}, TypeError, "requires_grad"),
    ({"frozen_params": [None]}, TypeError, "frozen_params"),
    ({"additional_output_names": [5]}, TypeError, "additional_output_names: \\[5\\]"),
    ({"loss_input_names": {"y"}}, TypeError, "loss_input_names"),
    ({"loss": Whole()}, GradientError, r"has the type int64\[\]: the loss needs a floating-point"),
    ({"loss": Returns("nope")}, UnknownNameError, "Node arg nope is not found"),
    ({"loss": Returns(())}, GraphError, r"build\(\) returned \(\)"),
    ({"optimizer": loss.MSELoss()}, TypeError, "Unknown optimizer provided"),
    ({"optimizer": optim.ClipGradNorm(1.0)}, TypeError, r"AdamW\(clip_grad=ClipGradNorm\(1\.0\)\)"),
    ({"artifact_directory": 5}, TypeError, "artifact_directory is a path, not 5"),
    ({"artifact_directory": "a\0b"}, TypeError, "artifact_directory is a path"),
    ({"prefix": "sub/"}, ArtifactError, "prefix='sub/' cannot begin the names.*artifact_directory"),
    ({"prefix": "../"}, ArtifactError, "prefix='../' cannot begin"),
    ({"prefix": None}, ArtifactError, "prefix=None cannot begin"),
    ({"prefix": "x" * 300}, ArtifactError, "cannot be written to .*"),
    ({"custom_op_library": 5}, GraphError, "5 does not exist"),
]


@pytest.mark.parametrize("name", MODELS)
def test_models_that_are_not_valid(tmp_path, name):
    model, kind, message = MODELS[name]
    refuses(
        kind, message, generate_artifacts, model, loss=LossType.MSELoss, artifact_directory=tmp_path
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "kind", "message"), ARGUMENTS, ids=["-".join(c) for c, *_ in ARGUMENTS]
)
def test_arguments_that_do_not_fit(tmp_path, monkeypatch, changes, kind, message):
    monkeypatch.chdir(tmp_path)
    settings = {"loss": LossType.MSELoss, **changes}
    refuses(kind, message, generate_artifacts, linear(), **settings)
    assert not list(tmp_path.iterdir())


def test_a_fault_of_the_model_is_not_blamed_on_the_loss():
    # Neither on a loss that is wrong beside it.
    model, _, message = MODELS["unknown operator"]
    refuses(GraphError, message, generate_artifacts, model, loss=Returns(()))


def test_what_a_loss_raises_itself_comes_through(tmp_path):
    class Broken(blockdsl.Block):
        def build(self, y):
            return {}["mine"]

    with pytest.raises(KeyError, match="mine"):
        generate_artifacts(linear(), loss=Broken(), artifact_directory=tmp_path)
    assert not list(tmp_path.iterdir())
    small.generate(tmp_path)  # the context is closed


def test_a_full_disk_leaves_the_old_files(tmp_path, monkeypatch):
    small.generate(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*args, **settings):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("blockdsl.backend.writing._chunks", full)
    refuses(ArtifactError, "cannot be written to .*: No space left", small.generate, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_weights_that_are_not_beside_the_model(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(linear(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    refuses(ModelFileError, "The weight 'w' lies in '.*w.bin', a file beside the model, which ca",
            generate_artifacts, path, loss=LossType.MSELoss)  # fmt: skip


def test_a_library_that_is_none(tmp_path):
    (tmp_path / "ops.so").write_text("none")
    settings = {"ort_format": True, "custom_op_library": tmp_path / "ops.so"}
    refuses(EngineError, "training_model.onnx cannot be converted to the ORT format",
            small.generate, tmp_path / "artifacts", **settings)  # fmt: skip
    assert not list((tmp_path / "artifacts").iterdir())


@pytest.mark.parametrize("parameters", [None, 5, (), ([],), ([1], [2])])
def test_parameters_that_are_none(tmp_path, parameters):
    path = tmp_path / "checkpoint"
    refuses(CheckpointError, "parameter", save_checkpoint, parameters, path)
    assert not path.exists()


def test_a_checkpoint_for_another_model(tmp_path):
    small.generate(tmp_path)
    model = onnx.ModelProto()
    model.CopyFrom(small.MODEL)
    tensor = model.graph.initializer[0]
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype("d"), tensor.name))
    path = tmp_path / "checkpoint"
    refuses(CheckpointError, r"is float32\[.*\] in the checkpoint and float64\[.*\] in the model",
            load_checkpoint_to_model, path, model)  # fmt: skip
    refuses(CheckpointError, "an onnx.ModelProto, not a str", load_checkpoint_to_model, path, "m")


# -- building ----------------------------------------------------------------------------------

BUILDS = [
    (lambda x: op.Concat(x, x, axis="a"), OpError, "Concat takes INT for 'axis', not 'a'"),
    (lambda x: op.Concat(x, x, axis=[1]), OpError, "takes INT for 'axis'"),
    (lambda x: op.Cast(x, to=np.float64), OpError, "Cast takes INT for 'to'"),
    (lambda x: op.LeakyRelu(x, alpha="a"), OpError, "LeakyRelu takes FLOAT for 'alpha', not 'a'"),
    (lambda x: op.Relu(x, outputs=2), OpError, "Relu has 1 to 1 outputs, not 2"),
    (lambda x: op.Split(x, outputs=0), OpError, "any number of outputs, not 0"),
    (lambda x: op.Relu(x, X=x), OpError, "Relu is given its input 'X' twice"),
    (lambda x: op.Add(x, object()), OpError, "A tensor, a number or an array is needed here"),
    (lambda x: op.Add(x, [[1, 2], [3]]), OpError, r"not \[\[1, 2\], \[3\]\]"),
    (lambda x: x.cast(np.int64) * 0.5, OpError, "0.5 meets tensors of int64, which cannot hold it"),
    (lambda x: x.reshape(2.5, 1), OpError, "meets tensors of int64"),
    (lambda x: x.cast("float23"), OpError, "ONNX has no element type 'float23'"),
    (lambda x: x == 0, OpError, r"== and != compare names: write x.equal\(0\)"),
    (lambda x: x != 1.5, OpError, r"or ~x.equal\(1.5\)"),
    (lambda x: np.float32(2) == x, OpError, "not known while the model is built"),
    (lambda x: x[:, 9], OpError, "Index 9 is out of range for axis 1 of 'x'"),
    (lambda x: x[:, [0, -4]], OpError, r"Index \[0, -4\] is out of range"),
    (lambda x: x[..., ...], OpError, "more than one `...`"),
    (lambda x: x[::0], OpError, "cannot be indexed with slice"),
    (lambda x: x.mean(2), OpError, "Axis 2 is out of range for rank 2"),
    (lambda x: x.sum("a"), OpError, "An axis is an integer, and the axes are 'a'"),
    (lambda x: x.softmax(5), OpError, "Axis 5 is out of range"),
    (lambda x: x.squeeze(9), OpError, "Axis 9 is out of range"),
    (lambda x: x.unsqueeze(9), OpError, "Axis 9 is out of range for rank 3"),
    (lambda x: x.transpose(0), OpError, r"\[0\] is no order of the 2 axes of 'x'"),
    (lambda x: x if x > 0 else -x, OpError, "is true is not known while the model is built"),
    (lambda x: max(x, 2 * x), OpError, r"the larger of two tensors is op\.Max"),
    (lambda x: x * x.cast(np.int64), GraphError, r"Convert one of them: x\.cast\(dtype\)"),
    (lambda x: sum(row for row in x), OpError, "is one tensor, which cannot be iterated over"),
    (lambda x: blockdsl.input(5), GraphError, "The name of an input is a text, not 5"),
    (lambda x: blockdsl.input(""), GraphError, "The name of an input is a text, not ''"),
    (lambda x: blockdsl.input("z", shape=3), GraphError, "'z' is 3: a shape is a tuple of sizes"),
    (lambda x: blockdsl.input("z", shape="ab"), GraphError, "'z' is 'ab': a shape is a tuple"),
    (lambda x: blockdsl.input("z", shape=(-1, 2)), GraphError, r"'z' is \(-1, 2\): a shape is"),
    (lambda x: loss.MSELoss()(x, ""), GraphError, "The name of an input is a text"),
]


@pytest.mark.parametrize(("build", "kind", "message"), BUILDS)
def test_building(build, kind, message):
    with blockdsl.empty_base():
        x = blockdsl.input("x", shape=("batch", 3))
        refuses(kind, message, build, x)


def test_tensors_of_another_model():
    with blockdsl.empty_base():
        kept = blockdsl.input("y", shape=(3,)) * 2
    message = "'Mul' is a tensor of another model than the one that is open here"
    with blockdsl.empty_base():
        blockdsl.input("x", shape=(3,))
        refuses(GraphError, message, kept.mean)
    refuses(GraphError, "No model is open", kept.mean)


@pytest.mark.parametrize("opset", [-1, 99, 17.5, "17"])
def test_opsets_that_there_are_not(opset):
    refuses(GraphError, f"There is no opset {opset!r}", blockdsl.empty_base(opset).__enter__)


@pytest.mark.parametrize("model", ["model.onnx", b"model"])
def test_models_that_are_none(model):
    refuses(GraphError, "The base model is an onnx.ModelProto", blockdsl.base(model).__enter__)
    refuses(GradientError, "The model is an onnx.ModelProto", blockdsl.grad, model, "x")


def test_gradients_of_nothing():
    refuses(GradientError, "wrt and of are names of tensors", blockdsl.grad, linear(), None)
    refuses(GradientError, "wrt and of are names of tensors", blockdsl.grad, linear(), [5])
    refuses(GradientError, "has no outputs", blockdsl.grad, onnx.ModelProto(), ["x"])


def test_running_statistics_are_not_trained(tmp_path):
    names = ["scale", "bias", "mean", "var"]
    values = [np.ones(4, "f"), np.zeros(4, "f"), np.zeros(4, "f"), np.ones(4, "f")]
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("BatchNormalization", ["x", *names], ["y", "m", "v"], training_mode=1)],
        "normalised",
        [tensor("x", TensorProto.FLOAT, ["batch", 4])],
        [tensor("y", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(v, n) for n, v in zip(names, values, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    settings = {"loss": LossType.MSELoss, "artifact_directory": tmp_path}
    refuses(GradientError, "'mean' holds running statistics",
            generate_artifacts, model, requires_grad=names, **settings)  # fmt: skip
    generate_artifacts(model, requires_grad=["*"], **settings)
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    assert {n for n, p in state.parameters if p.requires_grad} == {"scale", "bias"}


# -- running -----------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    return small.generate(tmp_path)


def opened(files, engine):
    state = CheckpointState.load_checkpoint(files / "checkpoint", engine=engine)
    return state, Module(files / "training_model.onnx", state, files / "eval_model.onnx")


def test_models_that_are_not_what_they_are_taken_for(files, engine):
    state, _ = opened(files, engine)
    training, evaluation = files / "training_model.onnx", files / "eval_model.onnx"
    plain, junk, empty = (files / f"{name}.onnx" for name in ("plain", "junk", "empty"))
    onnx.save(small.MODEL, plain)
    junk.write_bytes(b"junk" * 10)
    empty.write_bytes(b"")
    for wrong in (plain, evaluation):
        refuses(ArtifactError, "is not a training model", Module, wrong, state)
    refuses(ArtifactError, "parameter 'Net/Linear",
            Module, training, state, plain)  # fmt: skip
    for wrong in (junk, empty):
        refuses(ModelFileError, "is not an ONNX model", Module, training, state, wrong)


def test_models_that_train_less_than_the_checkpoint(files, tmp_path, engine):
    part = small.generate(tmp_path / "part", requires_grad=["Net/Linear.weight"])
    state, _ = opened(files, engine)
    refuses(ArtifactError, "The checkpoint says that 'Net/Linear.bias' is trained|has no parameter",
            Module, part / "training_model.onnx", state)  # fmt: skip


def test_objects_of_the_wrong_kind(files, engine):
    state, module = opened(files, engine)
    training, optimizer = files / "training_model.onnx", files / "optimizer_model.onnx"
    refuses(StateError, "SessionOptions, not a dict", Module, training, state, session_options={})
    refuses(StateError, "An optimizer trains a Module, not a NoneType", Optimizer, optimizer, None)
    refuses(StateError, "An optimizer trains a Module", Optimizer, optimizer, state)
    stepper = Optimizer(optimizer, module)
    refuses(
        StateError,
        "the rate of an Optimizer, not of a Module",
        LinearLRScheduler,
        module,
        1,
        2,
        0.1,
    )
    refuses(StateError, "warmup_step_count is 'a'", LinearLRScheduler, stepper, "a", 2, 0.1)
    refuses(StateError, "A learning rate is a number", LinearLRScheduler, stepper, 1, 2, "a")
    for names in (5, iter(["y"])):
        refuses(StateError, "The output names are a list of strings",
                module.export_model_for_inferencing, files / "out.onnx", names)  # fmt: skip
    assert not (files / "out.onnx").exists()


def test_values_that_a_state_cannot_hold(files, engine):
    state, _ = opened(files, engine)
    name = next(iter(dict(state.parameters)))
    refuses(StateError, "cannot be set to", setattr, state.parameters[name], "data", [[1], [2, 3]])
    for text in (b"\xff", "\ud800"):
        refuses(StateError, "not valid Unicode", state.properties.__setitem__, "name", text)


def test_a_checkpoint_under_a_name_that_is_too_long(files, engine):
    state, _ = opened(files, engine)
    before = sorted(os.listdir(files))
    refuses(CheckpointError, "Cannot write the checkpoint",
            CheckpointState.save_checkpoint, state, files / ("x" * 300))  # fmt: skip
    assert sorted(os.listdir(files)) == before


def test_feeds(files, engine):
    _, module = opened(files, engine)
    x, target = small.data(rows=4)
    wrong = [
        ((x.astype("d"), target), r"'x' of the training model is declared as float32\[batch, 4\]"),
        ((x[0], target), "of rank 1 instead of 2"),
        ((x, target[:, :1]), "axis 1 must be 2, not 1.$"),  # no advice about batches
        ((x, target[:3]), "axis 0 is 'batch', which is 4 in input 'x'"),
    ]
    for batch, message in wrong:
        refuses(FeedError, message, module, *batch)


def test_what_the_runtime_says_comes_without_its_source_code(tmp_path, engine):
    model = forward(lambda ids: op.Gather(weight("table", 5, 3), ids), ("batch",), dtype=np.int64)
    generate_artifacts(model, loss=LossType.MSELoss, artifact_directory=tmp_path)
    _, module = opened(tmp_path, engine)
    with pytest.raises(EngineError, match="99") as caught:
        module(np.array([1, 99]), np.zeros((2, 3), np.float32))
    assert ".cc:" not in str(caught.value)


# -- training ----------------------------------------------------------------------------------


def test_settings_of_a_run(files):
    trainer, data = Trainer(files), Batches(*small.data(), size=32)
    for settings in ({"epochs": 1.5}, {"epochs": "1"}, {"gradient_accumulation": "2"}):
        name = next(iter(settings))
        refuses(DataError, f"{name} is at least .*whole number", trainer.fit, data, **settings)
    for metrics in ({"loss": len}, {"accuracy": 5}):
        refuses(DataError, "a metric is a function", trainer.evaluate, data, metrics)


def test_what_a_metric_reads(files):
    trainer, data = Trainer(files), Batches(*small.data(), size=32)
    for metric, message in (
        (lambda outputs, inputs: outputs["logits"].mean(), r"additional_output_names=\['logits'\]"),
        (lambda outputs, inputs: inputs["targe"].mean(), "input 'targe'.*Did you mean 'target'"),
    ):
        refuses(UnknownNameError, message, trainer.evaluate, data, {"measure": metric})


def test_data_that_is_none():
    refuses(DataError, "rows of one length", Batches, [[1, 2], [3]])
    refuses(DataError, "size=1.5", Batches, np.zeros(4), size=1.5)
    refuses(DataError, "size='4'", Batches, np.zeros(4), size="4")


def test_optimizers():
    refuses(OptimizerError, "max_norm is 0: it must be above 0", optim.ClipGradNorm, 0)
    refuses(OptimizerError, "eps is -1", optim.AdamW, eps=-1)
