"""`generate_artifacts`: every parameter, the layout of its files, and its mistakes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import blockdsl
from blockdsl import artifacts, blocks, op, optim
from blockdsl.api import CheckpointState, Module, Optimizer
from blockdsl.artifacts import LossType, OptimType, generate_artifacts
from blockdsl.backend import checkpoint as codec
from blockdsl.errors import BlockError, EngineError
from tests.engines import loads_opset

WEIGHTS = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
FILES = ["checkpoint", "eval_model.onnx", "optimizer_model.onnx", "training_model.onnx"]


def mlp(opset=17, outputs=("output",), extra=(), initializers=()):
    """x [batch, 8] -> Gemm(16) -> Relu -> Gemm(3) -> output, as PyTorch exports it."""
    rng = np.random.default_rng(0)
    shapes = [(16, 8), (16,), (3, 16), (3,)]
    weights = {
        name: rng.normal(0, 0.3, s).astype(np.float32)
        for name, s in zip(WEIGHTS, shapes, strict=True)
    }
    weights |= dict(initializers)
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h"], transB=1),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("Gemm", ["r", "fc2.weight", "fc2.bias"], ["output"], transB=1),
            *extra,
        ],
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(w, name) for name, w in weights.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8 if opset < 20 else 9)


def generate(folder, model=None, **changes):
    settings = {
        "loss": LossType.CrossEntropyLoss,
        "optimizer": OptimType.AdamW,
        "artifact_directory": folder,
    }
    generate_artifacts(model or mlp(), **{**settings, **changes})
    return folder


def names(values):
    return [value.name for value in values]


def load(folder, kind="training", prefix=""):
    return onnx.load(folder / f"{prefix}{kind}_model.onnx")


def inputs(folder, kind="training", prefix=""):
    return names(load(folder, kind, prefix).graph.input)


def outputs(folder, kind="training", prefix=""):
    return names(load(folder, kind, prefix).graph.output)


def parameters(folder):
    """The trained and the frozen parameters, as the checkpoint and the training model have them."""
    state = codec.load(folder / "checkpoint")
    ends = "_grad.accumulation.out"
    trained = [o.removesuffix(ends) for o in outputs(folder) if o.endswith(ends)]
    assert list(state.trainable) == trained
    return trained, list(state.frozen)


def train(folder, engine, *batch, steps=3, rate=0.05):
    """The losses of some steps on one batch, and the module."""
    state = CheckpointState.load_checkpoint(folder / "checkpoint", engine=engine)
    module = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
    optimizer = Optimizer(folder / "optimizer_model.onnx", module)
    optimizer.set_learning_rate(rate)
    losses = []
    for _ in range(steps):
        result = module(*batch)
        losses.append(float(result[0] if isinstance(result, tuple) else result))
        optimizer.step()
        module.lazy_reset_grad()
    return losses, module


@pytest.fixture
def batch(rng):
    return rng.normal(size=(6, 8)).astype(np.float32), rng.integers(0, 3, 6)


# -- the layout of the files -------------------------------------------------------------------


def test_layout(tmp_path):
    assert generate_artifacts(
        mlp(),
        requires_grad=["fc2.weight", "fc1.weight"],  # the order is the model's, not this one
        frozen_params=["fc1.bias"],
        loss=LossType.CrossEntropyLoss,
        optimizer=OptimType.AdamW,
        artifact_directory=tmp_path,
    ) is None  # fmt: skip
    assert sorted(os.listdir(tmp_path)) == FILES
    trained, listed = ["fc1.weight", "fc2.weight"], ["fc1.weight", "fc1.bias", "fc2.weight"]
    assert inputs(tmp_path) == [
        "x",
        "labels",
        *listed,
        *(f"{name}_grad.accumulation.buffer" for name in trained),
        "lazy_reset_grad",
    ]
    loss = outputs(tmp_path)[0]
    assert outputs(tmp_path) == [loss, *(f"{name}_grad.accumulation.out" for name in trained)]
    assert inputs(tmp_path, "eval") == ["x", "labels", *listed]
    assert outputs(tmp_path, "eval") == [loss]
    assert names(load(tmp_path).graph.initializer)[:1] == ["fc2.bias"]  # not listed: it stays
    assert parameters(tmp_path) == (trained, ["fc1.bias"])


def test_types_of_the_training_model(tmp_path):
    generate(tmp_path, requires_grad=["fc1.weight"])
    graph = load(tmp_path).graph
    types = {v.name: v.type.tensor_type for v in (*graph.input, *graph.output)}
    shapes = {name: [d.dim_param or d.dim_value for d in t.shape.dim] for name, t in types.items()}
    assert shapes["labels"] == ["batch"]
    assert types["labels"].elem_type == TensorProto.INT64
    assert shapes["fc1.weight_grad.accumulation.buffer"] == [16, 8]
    for flag in ("lazy_reset_grad", "fc1.weight_grad.accumulation.out"):
        assert types[flag].elem_type == TensorProto.BOOL
        assert shapes[flag] == [1]


@pytest.mark.parametrize(
    ("optimizer", "sequences"),
    [
        (OptimType.AdamW, ["first_order_moments", "second_order_moments"]),
        (OptimType.SGD, ["first_order_moments"]),
    ],
)
def test_layout_of_the_optimizer_model(tmp_path, optimizer, sequences):
    generate(tmp_path, optimizer=optimizer)
    expected = ["learning_rate", "step", "params", "gradients", *sequences]
    assert inputs(tmp_path, "optimizer") == expected


def test_no_optimizer(tmp_path):
    generate(tmp_path, optimizer=None)
    assert sorted(os.listdir(tmp_path)) == [f for f in FILES if f != "optimizer_model.onnx"]


@pytest.mark.parametrize(
    ("loss", "target"),
    [
        (LossType.MSELoss, ("target", TensorProto.FLOAT, ["batch", 3])),
        (LossType.L1Loss, ("target", TensorProto.FLOAT, ["batch", 3])),
        (LossType.BCEWithLogitsLoss, ("target", TensorProto.FLOAT, ["batch", 3])),
        (LossType.CrossEntropyLoss, ("labels", TensorProto.INT64, ["batch"])),
    ],
)
def test_targets(tmp_path, loss, target):
    generate(tmp_path, loss=loss)
    found = load(tmp_path).graph.input[1]
    shape = [d.dim_param or d.dim_value for d in found.type.tensor_type.shape.dim]
    assert (found.name, found.type.tensor_type.elem_type, shape) == target


def test_model_is_a_path_or_a_proto_and_is_not_changed(tmp_path):
    model = mlp()
    before = model.SerializeToString()
    onnx.save(model, tmp_path / "model.onnx")
    folders = [tmp_path / name for name in "abc"]
    for folder, given in zip(
        folders, [model, tmp_path / "model.onnx", str(tmp_path / "model.onnx")], strict=True
    ):
        generate(folder, given)
    assert model.SerializeToString() == before
    for name in FILES:
        assert len({(folder / name).read_bytes() for folder in folders}) == 1


def test_weights_in_files_beside_the_model(tmp_path, engine, batch):
    (tmp_path / "model").mkdir()
    onnx.save(
        mlp(),
        tmp_path / "model" / "model.onnx",
        save_as_external_data=True,
        location="weights",
        size_threshold=0,
    )
    generate(tmp_path / "run", tmp_path / "model" / "model.onnx", requires_grad=["fc1.weight"])
    generate(tmp_path / "same", mlp(), requires_grad=["fc1.weight"])
    assert sorted(os.listdir(tmp_path / "run")) == FILES
    expected, _ = train(tmp_path / "same", engine, *batch)
    assert train(tmp_path / "run", engine, *batch)[0] == expected


def test_every_build_gives_the_same_bytes(tmp_path):
    code = (
        "import sys; from pathlib import Path; from tests.test_artifacts import generate\n"
        "generate(Path(sys.argv[1]))"
    )
    root = Path(__file__).parents[1]
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        arguments = [sys.executable, "-c", code, str(tmp_path / seed)]
        subprocess.run(arguments, env=environment, check=True, timeout=120)
    generate(tmp_path / "3")
    for name in FILES:
        assert len({(tmp_path / n / name).read_bytes() for n in "123"}) == 1, name


# -- what is trained ---------------------------------------------------------------------------


SHAPE = {"shape": np.array([-1, 3])}  # an integer initializer
RESHAPE = [helper.make_node("Reshape", ["output", "shape"], ["reshaped"])]


@pytest.mark.parametrize(
    ("wanted", "frozen", "expected"),
    [
        (None, None, (WEIGHTS, [])),
        ("all", None, (WEIGHTS, [])),
        (["all"], None, (WEIGHTS, [])),
        ("fc1.weight", None, (["fc1.weight"], [])),
        (["*.weight"], None, (["fc1.weight", "fc2.weight"], [])),
        (["fc1.*"], ["fc2.*"], (WEIGHTS[:2], WEIGHTS[2:])),
        (None, ["fc1.*"], (WEIGHTS[2:], WEIGHTS[:2])),
        ("all", ["fc2.bias"], (WEIGHTS[:3], WEIGHTS[3:])),
        (["*"], None, (WEIGHTS, [])),
        (["fc2.bias"], ["shape"], (["fc2.bias"], ["shape"])),
    ],
    ids=str,
)
def test_what_is_trained(tmp_path, wanted, frozen, expected):
    model = mlp(outputs=["reshaped"], extra=RESHAPE, initializers=SHAPE)
    generate(tmp_path, model, requires_grad=wanted, frozen_params=frozen)
    assert parameters(tmp_path) == expected


def test_what_the_loss_does_not_depend_on_is_not_trained(tmp_path):
    unused = [helper.make_node("Mul", ["output", "gain"], ["beside"])]
    model = mlp(
        outputs=["output", "beside"], extra=unused, initializers={"gain": np.ones(3, np.float32)}
    )
    generate(tmp_path, model, loss_input_names=["output"])
    assert parameters(tmp_path) == (WEIGHTS, [])


def test_constants_and_settings_are_not_trained(tmp_path):
    class Net(blockdsl.ForwardBlock):
        def build(self, x):
            scaled = (x - np.float32([1, 2, 3])) * blocks.Constant([2.0, 3.0, 4.0])()
            hidden = blocks.Linear(3, 4)(scaled)
            large = op.Resize(hidden, scales=np.float32([1, 2]))
            return blocks.BatchNorm(8)(large)

    with blockdsl.empty_base():
        net = Net()
        net(blockdsl.input("x", shape=("batch", 3)))
        model = net.to_model_proto()
    resize = next(node for node in model.graph.node if node.op_type == "Resize")
    scales = next(t for t in model.graph.initializer if t.name == resize.input[2])
    scales.name = resize.input[2] = "up.scales"  # as an exporter might name it
    generate(tmp_path, model, loss=LossType.MSELoss)
    made = ["Linear.weight", "Linear.bias", "BatchNorm.weight", "BatchNorm.bias"]
    state = codec.load(tmp_path / "checkpoint")
    assert list(state.trainable) == [f"Net/{name}" for name in made]
    assert list(state.frozen) == ["Net/BatchNorm.running_mean", "Net/BatchNorm.running_var"]


# -- the other parameters ----------------------------------------------------------------------


def test_prefix(tmp_path):
    generate(tmp_path, prefix="mine_", nominal_checkpoint=True)
    assert sorted(os.listdir(tmp_path)) == sorted(
        f"mine_{name}" for name in (*FILES, "nominal_checkpoint")
    )


def test_default_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generate_artifacts(mlp(), loss=LossType.CrossEntropyLoss, optimizer=OptimType.SGD)
    assert sorted(os.listdir(tmp_path)) == FILES


def test_nominal_checkpoint(tmp_path):
    generate(tmp_path, nominal_checkpoint=True)
    nominal = codec.load(tmp_path / "nominal_checkpoint")
    assert nominal.nominal
    assert list(nominal.trainable) == WEIGHTS
    sizes = [(tmp_path / name).stat().st_size for name in ("nominal_checkpoint", "checkpoint")]
    assert sizes[0] < sizes[1]


def test_ort_format(tmp_path, engine, batch):
    generate(tmp_path, ort_format=True)
    ort = [f"{kind}_model.ort" for kind in ("eval", "optimizer", "training")]
    assert sorted(os.listdir(tmp_path)) == sorted([*FILES, *ort])
    for name in ort:
        assert (tmp_path / name).read_bytes()[4:8] == b"ORTM"


@pytest.mark.parametrize("kind", [list, tuple])
def test_additional_outputs(tmp_path, kind, engine, batch):
    generate(tmp_path, additional_output_names=kind(["output", "h"]))
    for model in ("training", "eval"):
        assert outputs(tmp_path, model)[1:3] == ["output", "h"]
    _, module = train(tmp_path, engine, *batch)
    loss, output, hidden = module(*batch)
    assert (np.shape(loss), output.shape, hidden.shape) == ((), (6, 3), (6, 16))


def test_loss_inputs(tmp_path):
    class Distance(blockdsl.Block):
        def build(self, a, b):
            return (a.mean() - b.mean()).square()

    generate(tmp_path, loss=Distance(), loss_input_names=["output", "r"])
    assert inputs(tmp_path)[:2] == ["x", "fc1.weight"]


def test_loss_none_takes_the_first_output(tmp_path, engine, batch):
    nodes = [helper.make_node("ReduceSumSquare", ["output"], ["energy"], keepdims=0)]
    generate(tmp_path, mlp(outputs=["energy"], extra=nodes), loss=None)
    assert outputs(tmp_path)[0] == "energy"
    losses, _ = train(tmp_path, engine, batch[0], steps=10)
    assert losses[-1] < losses[0]


def test_optimizer_block(tmp_path, engine, batch):
    generate(tmp_path, optimizer=optim.SGD(momentum=0.9, clip_grad=optim.ClipGradNorm(1.0)))
    losses, _ = train(tmp_path, engine, *batch, steps=10)
    assert losses[-1] < losses[0]


def test_custom_op_library(tmp_path):
    (tmp_path / "library.so").touch()
    nodes = [helper.make_node("Polish", ["output"], ["polished"], domain="com.example")]
    model = mlp(outputs=["output"], extra=nodes)
    model.graph.value_info.append(helper.make_tensor_value_info("polished", 1, ["batch", 3]))
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    generate(
        tmp_path / "run",
        model,
        custom_op_library=tmp_path / "library.so",
        additional_output_names=["polished"],
    )
    assert "Polish" in {node.op_type for node in load(tmp_path / "run").graph.node}
    assert "com.example" in {o.domain for o in load(tmp_path / "run").opset_import}


# -- every opset -------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [9, 10, 11, 13, 15, 17, 18, 20, 21, 22, 23])
def test_opset_of_the_base_model_is_kept(tmp_path, opset, engine, batch):
    if not loads_opset(opset):
        pytest.skip(f"the installed runtime does not load opset {opset}")
    generate(tmp_path, mlp(opset))
    for kind in ("training", "eval", "optimizer"):
        model = load(tmp_path, kind)
        assert {o.domain: o.version for o in model.opset_import}[""] == opset
        onnx.checker.check_model(model)
    losses, _ = train(tmp_path, engine, *batch, steps=10)
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("opset", [9, 13, 17])
def test_opsets_train_alike(tmp_path, opset, engine, batch):
    generate(tmp_path / "a", mlp(opset))
    generate(tmp_path / "b", mlp(15))
    losses = [train(tmp_path / name, engine, *batch)[0] for name in "ab"]
    np.testing.assert_allclose(*losses, rtol=1e-5)


# -- files are replaced whole or not at all ----------------------------------------------------


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("broken", ["convert_to_ort", "write_checkpoint", "writing.write"])
def test_an_error_half_way_leaves_the_old_files(tmp_path, monkeypatch, broken):
    generate(tmp_path, optimizer=OptimType.SGD)
    before = contents(tmp_path)

    def fail(*args, **settings):
        raise EngineError("no space left")

    monkeypatch.setattr(f"blockdsl.artifacts.generate.{broken}", fail)
    with pytest.raises(EngineError, match="no space left"):
        generate(tmp_path, ort_format=True)
    assert contents(tmp_path) == before


def test_old_files_are_replaced(tmp_path):
    (tmp_path / "checkpoint").mkdir()  # as older versions of onnxruntime-training made it
    (tmp_path / "checkpoint" / "paramtrain_tensors.pbseq").touch()
    (tmp_path / "training_model.onnx").write_text("old")
    (tmp_path / "notes.txt").write_text("mine")
    generate(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted([*FILES, "notes.txt"])
    assert codec.load(tmp_path / "checkpoint").trainable


def test_the_directory_is_made(tmp_path):
    generate(tmp_path / "a" / "b")
    assert sorted(os.listdir(tmp_path / "a" / "b")) == FILES


def test_another_folder_in_the_place_of_a_file(tmp_path):
    precious = tmp_path / "training_model.onnx"
    precious.mkdir()
    (precious / "thesis").touch()
    with pytest.raises(BlockError, match="stands in the way of an artifact"):
        generate(tmp_path)
    assert (precious / "thesis").exists()


def test_unwritable_directory(tmp_path):
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BlockError, match=r"The artifacts cannot be written to '.*file"):
            generate(folder)
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


# -- mistakes ----------------------------------------------------------------------------------


class Whole(blockdsl.Block):
    """An integer loss."""

    def build(self, output):
        return output.mean().cast("int64")


class Vector(blockdsl.Block):
    def build(self, output):
        return output.mean(axis=1)


class Nothing(blockdsl.Block):
    def build(self, output):
        return None


class Blocked(blockdsl.Block):
    """No parameter reaches it: ArgMax has no derivative."""

    def build(self, output):
        return blockdsl.op.ArgMax(output).cast("float32").mean()


class Scaled(blockdsl.Block):
    """It makes an initializer of the constant."""

    def build(self, output):
        return (3.5 * output).square().mean()


MISTAKES = [
    ({"model": 3}, RuntimeError, "Please pass in either a string or an ONNX ModelProto"),
    ({"model": "gone.onnx"}, FileNotFoundError, "The model 'gone.onnx' does not exist"),
    ({"model": "."}, RuntimeError, "is a folder, not a file"),
    ({"model": __file__}, RuntimeError, "is not an ONNX model"),
    ({"loss": "mse"}, RuntimeError, "Unknown loss provided"),
    ({"loss": Whole}, RuntimeError, r"Unknown loss provided.*Make an instance: Whole\(\)"),
    ({"loss": Whole()}, RuntimeError, "int64"),
    ({"loss": Vector()}, RuntimeError, r"float32\[batch\]"),
    ({"loss": Nothing()}, RuntimeError, r"build\(\) returned None"),
    ({"loss": Blocked()}, RuntimeError, "the loss 'Blocked/ReduceMean' depends on no floating-po"),
    (
        {"loss": Blocked(), "requires_grad": ["fc1.weight"]},
        RuntimeError,
        "'fc1.weight' reaches the loss only through ArgMax",
    ),
    ({"loss": None}, RuntimeError, r"float32\[batch, 3\]"),
    ({"optimizer": "adam"}, TypeError, "Unknown optimizer provided"),
    ({"optimizer": optim.AdamW}, TypeError, r"Unknown optimizer .* Make an instance: AdamW\(\)"),
    (
        {"requires_grad": ["fc1.weight"], "frozen_params": ["fc1.*"]},
        RuntimeError,
        "cannot be frozen and require gradient computation at the same time.*fc1.weight",
    ),
    ({"requires_grad": ["fc1.weigth"]}, RuntimeError, "weigth is not found.*Did you mean 'fc1.we"),
    ({"requires_grad": ["conv*"]}, LookupError, r"conv\* is not found in the graph. Known names:"),
    ({"requires_grad": ["q"], "loss": Scaled()}, LookupError, r"names: ('fc\d\.\w+'(, )?)+\.$"),
    ({"requires_grad": ["x"]}, RuntimeError, r"blockdsl\.grad\(model, wrt=\['x'\]\)"),
    ({"requires_grad": ["h"]}, RuntimeError, "h is computed by the model"),
    ({"requires_grad": []}, BlockError, "There is nothing to train"),
    ({"frozen_params": ["*"]}, RuntimeError, "The model has no parameter to train"),
    ({"additional_output_names": "output"}, RuntimeError, "Expected a list of strings"),
    ({"additional_output_names": ["outputs"]}, LookupError, "name outputs is not a graph value"),
    ({"loss_input_names": "output"}, RuntimeError, "Expected a list of strings"),
    ({"loss_input_names": ["outputs"]}, LookupError, "outputs is not .* Did you mean 'output'"),
    (
        {"loss_input_names": ["h", "r"]},
        RuntimeError,
        r"a tensor r of the type float32\[batch, 16\]",
    ),
    ({"loss_input_names": ["h", "r", "x"]}, RuntimeError, "cannot take the tensors 'h', 'r', 'x'"),
    ({"custom_op_library": "gone.so"}, RuntimeError, r"gone\.so does not exist"),
]


@pytest.mark.parametrize(
    ("changes", "kind", "message"), MISTAKES, ids=["-".join(changes) for changes, *_ in MISTAKES]
)
def test_mistakes(tmp_path, changes, kind, message):
    with pytest.raises(BlockError, match=message) as caught:
        generate(tmp_path / "run", **changes)
    assert isinstance(caught.value, kind)
    assert not (tmp_path / "run").exists()


def test_two_outputs_and_a_loss_of_one(tmp_path):
    model = mlp(outputs=["output", "h"])
    with pytest.raises(BlockError, match=r"has 2 outputs \('output', 'h'\), and MSELoss takes one"):
        generate(tmp_path, model, loss=LossType.MSELoss)
    generate(tmp_path, model, loss=LossType.MSELoss, loss_input_names=["h"])
    generate(tmp_path, model, loss=LossType.CrossEntropyLoss, loss_input_names=["output"])


def test_an_integer_is_not_trained(tmp_path):
    model = mlp(outputs=["reshaped"], extra=RESHAPE, initializers=SHAPE)
    with pytest.raises(BlockError, match=r"'shape' has the type int64\[2\].*requires_grad='all'"):
        generate(tmp_path, model, requires_grad=[*WEIGHTS, "shape"])


def test_a_model_without_parameters(tmp_path):
    with blockdsl.empty_base() as handle:
        y = blockdsl.input("x", shape=("batch", 3)).relu()
        blockdsl.graph.current().set_outputs([y])
    with pytest.raises(BlockError, match="The model has no parameter to train"):
        generate(tmp_path, handle.model)


@pytest.mark.parametrize("engine_asked", ["numpy", "ort"])
def test_wrong_targets(tmp_path, engine, engine_asked, batch):
    generate(tmp_path)
    _, module = train(tmp_path, engine, *batch, steps=1)
    x, labels = batch
    make = {"numpy": lambda a: a, "ort": onnxruntime.OrtValue.ortvalue_from_numpy}[engine_asked]
    for wrong, message in [
        (labels.astype(np.int32), r"labels.*int64\[batch\].*given int32\[6\]"),
        (labels[:, None], r"labels.*given int64\[6, 1\]"),
        (labels[:4], r"labels.*axis 0 is 'batch', which is 6 in input 'x'"),
    ]:
        with pytest.raises(BlockError, match=message):
            module(make(x), make(wrong))
    with pytest.raises(BlockError, match="takes 2 inputs"):
        module(make(x))


# -- checkpoints and models --------------------------------------------------------------------


def test_checkpoints_of_parameters(tmp_path):
    class Training(blockdsl.TrainingBlock):
        def build(self, output):
            return blockdsl.loss.MSELoss()(output)

    training = Training()
    training.requires_grad("fc1.weight")
    training.requires_grad("fc2.weight", False)
    with blockdsl.base(mlp()):
        training("output")
    artifacts.save_checkpoint(training.parameters(), tmp_path / "checkpoint")
    artifacts.save_checkpoint(training.parameters(), tmp_path / "nominal", nominal_checkpoint=True)
    assert artifacts.save_checkpoint is blockdsl.save_checkpoint

    model = mlp()
    expected = {t.name: numpy_helper.to_array(t) for t in mlp().graph.initializer}
    for tensor in model.graph.initializer:
        zeros = np.zeros(tensor.dims, np.float32)
        tensor.CopyFrom(numpy_helper.from_array(zeros, tensor.name))
    blockdsl.load_checkpoint_to_model(tmp_path / "checkpoint", model)
    for tensor in model.graph.initializer:
        value = numpy_helper.to_array(tensor)
        listed = tensor.name in ("fc1.weight", "fc2.weight")
        assert np.array_equal(value, expected[tensor.name] if listed else np.zeros_like(value))
    with pytest.raises(BlockError, match="is a nominal checkpoint: it holds no values"):
        blockdsl.load_checkpoint_to_model(tmp_path / "nominal", model)
