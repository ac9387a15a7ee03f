"""Blocks of onnxruntime.training.onnxblock and of blockdsl in one process, on one model.

conftest.py says where it runs.
"""

from __future__ import annotations

import importlib
import itertools
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import blockdsl
from blockdsl import api
from blockdsl.errors import GraphError


@pytest.fixture(scope="module")
def theirs():
    return importlib.import_module("onnxruntime.training.onnxblock")


@pytest.fixture
def generators(theirs):
    return {
        "blockdsl": blockdsl.artifacts.generate_artifacts,
        "onnxblock": importlib.import_module("onnxruntime.training.artifacts").generate_artifacts,
    }


def model() -> onnx.ModelProto:
    rng = np.random.default_rng(7)
    made = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 3] x) => (float[N, 2] y, float[N, 2] z) {
            h = MatMul (x, w)
            y = Add (h, b)
            z = Tanh (y)
        }""")
    weight, bias = rng.normal(size=(3, 2)).astype(np.float32), np.zeros(2, np.float32)
    made.graph.initializer.extend(
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")]
    )
    return made


def weighted(library):
    """A loss of two outputs in onnxblock's words, on either library."""

    class Weighted(library.Block):
        def __init__(self):
            super().__init__()
            self._mse = library.loss.MSELoss()
            self._bce = library.loss.BCEWithLogitsLoss()
            self._share = [library.blocks.Constant(0.4), library.blocks.Constant(0.6)]
            self._mul, self._add = library.blocks.Mul(), library.blocks.Add()

        def build(self, y, z):
            return self._add(
                self._mul(self._share[0](), self._mse(y, target_name="target1")),
                self._mul(self._share[1](), self._bce(z, target_name="target2")),
            )

    return Weighted()


def by_hand(library):
    """The same loss, with its first half appended to `self.base.graph` node by node."""

    class ByHand(library.Block):
        def build(self, y, z):
            target = library.blocks.InputLike(y)("target1")
            graph = self.base.graph
            share = helper.make_tensor("share", TensorProto.FLOAT, [], [0.4])
            graph.initializer.append(share)
            graph.node.append(helper.make_node("Sub", [y, target], ["error"]))
            graph.node.append(helper.make_node("Mul", ["error", "error"], ["squared"]))
            graph.node.append(helper.make_node("ReduceMean", ["squared"], ["mse"], keepdims=0))
            graph.node.append(helper.make_node("Mul", ["mse", "share"], ["first"]))
            half = library.blocks.Mul()(
                library.blocks.Constant(0.6)(), library.loss.BCEWithLogitsLoss()(z, "target2")
            )
            return library.blocks.ReduceMean(keepdims=False)(library.blocks.Add()("first", half))

    return ByHand()


def mixed(library):
    """A block of one library that is made of blocks of the other."""
    other = importlib.import_module(
        "onnxruntime.training.onnxblock" if library is blockdsl else "blockdsl"
    )

    class Mixed(library.Block):
        def build(self, y, z):
            first = other.blocks.Mul()(
                library.blocks.Constant(0.4)(), other.loss.MSELoss()(y, "target1")
            )
            second = library.blocks.Mul()(
                other.blocks.Constant(0.6)(), library.loss.BCEWithLogitsLoss()(z, "target2")
            )
            first = other.blocks.ReduceSum(keepdims=False)(first)
            return other.blocks.Add()(first, library.blocks.ReduceSum(keepdims=False)(second))

    return Mixed()


OPTIMIZERS = {
    "AdamW": lambda library: library.optim.AdamW(weight_decay=0.1),
    "AdamW-clipped": lambda library: library.optim.AdamW(clip_grad=library.optim.ClipGradNorm(0.1)),
    "SGD": lambda library: library.optim.SGD(),
}


def train(folder: Path) -> tuple[list[float], dict[str, np.ndarray]]:
    state = api.CheckpointState.load_checkpoint(folder / "checkpoint")
    module = api.Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
    optimizer = api.Optimizer(folder / "optimizer_model.onnx", module)
    optimizer.set_learning_rate(0.1)
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4, 3)).astype(np.float32)
    targets = rng.uniform(size=(2, 4, 2)).astype(np.float32)
    losses = []
    for _ in range(3):
        losses.append(float(np.squeeze(module(x, *targets))))
        optimizer.step()
        module.lazy_reset_grad()
    return losses, {name: parameter.data.copy() for name, parameter in state.parameters}


@pytest.fixture
def reference(tmp_path):
    """Losses and parameters by blockdsl's own blocks alone, by the optimizer."""

    def of(optimizer):
        folder = tmp_path / f"reference-{optimizer}"
        blockdsl.artifacts.generate_artifacts(
            model(), ["w", "b"], [], weighted(blockdsl), OPTIMIZERS[optimizer](blockdsl), folder
        )
        return train(folder)

    return of


LOSSES = {"weighted": weighted, "by-hand": by_hand, "mixed": mixed}
COMBINATIONS = [
    (generator, loss, whose_loss, optimizer, whose_optimizer)
    for generator, (loss, whose_loss), (optimizer, whose_optimizer) in itertools.product(
        ["blockdsl", "onnxblock"],
        itertools.product(LOSSES, ["blockdsl", "onnxblock"]),
        [("AdamW", "blockdsl"), ("AdamW-clipped", "onnxblock"), ("SGD", "blockdsl")],
    )
] + [
    ("blockdsl", "weighted", "onnxblock", "AdamW", "onnxblock"),
    ("onnxblock", "weighted", "blockdsl", "AdamW-clipped", "blockdsl"),
    ("onnxblock", "weighted", "blockdsl", "SGD", "onnxblock"),
]


@pytest.mark.parametrize("row", COMBINATIONS, ids="-".join)
def test_artifacts_of_both(row, theirs, generators, reference, tmp_path, monkeypatch):
    generator, loss, whose_loss, optimizer, whose_optimizer = row
    libraries = {"blockdsl": blockdsl, "onnxblock": theirs}
    if whose_optimizer == "onnxblock":
        # Its empty_base stamps onnx's newest IR version: what its users have to write themselves.
        monkeypatch.setattr(onnx, "IR_VERSION", 10)
    generators[generator](
        model(),
        requires_grad=["w", "b"],
        loss=LOSSES[loss](libraries[whose_loss]),
        optimizer=OPTIMIZERS[optimizer](libraries[whose_optimizer]),
        artifact_directory=tmp_path,
    )
    losses, parameters = train(tmp_path)
    expected_losses, expected_parameters = reference(optimizer)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    for name, value in expected_parameters.items():
        np.testing.assert_allclose(parameters[name], value, rtol=1e-5, atol=1e-6)


def test_clipping_by_a_block_of_the_other(theirs, generators, reference, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx, "IR_VERSION", 10)  # as above
    for library, other in ((blockdsl, theirs), (theirs, blockdsl)):
        generators["onnxblock" if library is theirs else "blockdsl"](
            model(),
            requires_grad=["w", "b"],
            loss=weighted(blockdsl),
            optimizer=library.optim.AdamW(clip_grad=other.optim.ClipGradNorm(0.1)),
            artifact_directory=tmp_path,
        )
        np.testing.assert_allclose(train(tmp_path)[0], reference("AdamW-clipped")[0], rtol=1e-5)


@pytest.mark.parametrize("loss", ["MSELoss", "L1Loss", "BCEWithLogitsLoss", "CrossEntropyLoss"])
def test_every_loss_under_their_gradient(loss, generators, tmp_path):
    """Our losses are of operators that onnxruntime-training's own gradient builder knows."""
    made = model()
    del made.graph.output[1]
    for who in generators:
        (tmp_path / who).mkdir()
        generators[who](
            made,
            requires_grad=["w"],
            loss=getattr(blockdsl.loss, loss)(),
            artifact_directory=tmp_path / who,
        )
    gradients = {}
    labels = loss == "CrossEntropyLoss"
    target = np.array([0, 1, 1, 0]) if labels else np.full((4, 2), 0.3, np.float32)
    for who in generators:
        state = api.CheckpointState.load_checkpoint(tmp_path / who / "checkpoint")
        module = api.Module(tmp_path / who / "training_model.onnx", state)
        module(np.arange(12, dtype=np.float32).reshape(4, 3) / 10, target)
        gradients[who] = state.parameters["w"].grad
    np.testing.assert_allclose(gradients["blockdsl"], gradients["onnxblock"], rtol=1e-5, atol=1e-7)


def test_from_a_file(theirs, generators, tmp_path, monkeypatch):
    # onnxblock writes temporary files into the working directory when the model has a path.
    monkeypatch.chdir(tmp_path)
    onnx.save(model(), "net.onnx")
    before = train_folder(generators["blockdsl"], weighted(theirs), tmp_path / "ours")
    after = train_folder(generators["onnxblock"], weighted(blockdsl), tmp_path / "theirs")
    np.testing.assert_allclose(before, after, rtol=1e-5)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.onnx", "ours", "theirs"]


def train_folder(generate, loss, folder):
    folder.mkdir()
    generate(
        "net.onnx",
        requires_grad=["w", "b"],
        loss=loss,
        optimizer=blockdsl.optim.SGD(),
        artifact_directory=folder,
    )
    return train(folder)[0]


# -- one open model --------------------------------------------------------------------------------


def openers(theirs):
    return [(theirs, blockdsl), (blockdsl, theirs)]


def test_blocks_of_the_other_on_an_open_model(theirs):
    for opener, guest in openers(theirs):
        with opener.base(model()) as handle:
            same = handle.model
            product = guest.blocks.Mul()("y", "z")
            total = opener.blocks.ReduceSum(keepdims=False)(product)
            target = guest.blocks.InputLike("y")("target")
            opener.blocks.Sub()(target, guest.blocks.Abs()("z"))
            assert blockdsl.graph.current().type_of(total).shape == ()
            assert handle.model is same
        onnx.checker.check_model(handle.model, full_check=True)
        kinds = [node.op_type for node in handle.model.graph.node]
        assert kinds == ["MatMul", "Add", "Tanh", "Mul", "ReduceSum", "Abs", "Sub"]


def test_blocks_of_the_other_on_an_empty_model(theirs):
    for opener, guest in openers(theirs):
        with opener.empty_base(opset_version=17) as handle:
            handle.model.graph.input.append(
                helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
            )
            hidden = guest.blocks.Linear(4, 3)("x")
            scores = opener.blocks.Linear(3, 2)(guest.blocks.Sigmoid()(hidden))
            guest.blocks.Clip(0.0, 1.0)(scores)
        assert len(handle.model.graph.initializer) >= 4
        onnx.checker.check_model(handle.model, full_check=True)


def test_a_block_of_ours_stamps_a_version_that_runtimes_read(theirs):
    with theirs.empty_base(opset_version=17) as handle:
        blockdsl.blocks.Constant(1.0)()
    assert handle.model.ir_version == 8
    with theirs.base(model()) as handle:
        blockdsl.blocks.Constant(1.0)()
    assert handle.model.ir_version == model().ir_version


def forward(library, body):
    class Forward(library.ForwardBlock):
        def build(self, *names):
            return body.blocks.Sub()(names[0], body.blocks.Neg()(names[1]))

    return Forward()


def test_forward_blocks(theirs):
    for opener, guest in openers(theirs):
        for body in (opener, guest):
            block = forward(guest, body)
            with opener.base(model()) as handle:
                name = block("y", "z")
                after = opener.blocks.Neg()(name)  # the live model goes on, and knows its types
            made = block.to_model_proto()
            assert [output.name for output in made.graph.output] == [name]
            assert [output.name for output in handle.model.graph.output] == [name]
            assert handle.model.graph.node[-1].output[0] == after
            onnx.checker.check_model(made, full_check=True)


def training(library, body):
    class Training(library.TrainingBlock):
        def __init__(self):
            super().__init__()
            self.loss = body.loss.MSELoss()

        def build(self, y, z):
            return self.loss(y), z

    return Training()


def test_training_blocks(theirs):
    names = {}
    for opener, guest in openers(theirs):
        for body in (opener, guest):
            block = training(guest, body)
            block.requires_grad("w")
            block.requires_grad("b", False)
            with opener.base(model()) as handle:
                block("y", "z")
            made, evaluation = block.to_model_proto()
            trained, frozen = block.parameters()
            assert [t.name for t in trained] == ["w"]
            assert [t.name for t in frozen] == ["b"]
            assert [i.name for i in evaluation.graph.input] == ["x", "target", "w", "b"]
            inputs = [i.name for i in handle.model.graph.input]
            assert inputs == [i.name for i in made.graph.input]
            names[opener, guest, body] = inputs
            assert made.graph.output[-1].name == "w_grad.accumulation.out"
    assert all(found == inputs for found in names.values())


def test_only_one_model_is_open(theirs):
    for opener, guest in openers(theirs):
        with opener.base(model()):
            for another in (lambda g=guest: g.base(model()), guest.empty_base):
                with (
                    pytest.raises(RuntimeError, match="Base onnx model already exists"),
                    another(),
                ):
                    pass
            assert guest.blocks.Neg()("y") != "y"  # the refusal closed nothing
        with guest.base(model()):
            pass
    with pytest.raises(AttributeError):
        theirs.blocks.Neg()("y")
    with pytest.raises(GraphError, match="No model is open"):
        blockdsl.blocks.Neg()("y")


def test_threads_do_not_share_our_models(theirs):
    found, go = {}, threading.Barrier(2)

    def build(name):
        with blockdsl.empty_base() as handle:
            blockdsl.input(name, shape=(2,))
            go.wait(timeout=60)
            theirs.blocks.Constant(1.0)()
            go.wait(timeout=60)
        found[name] = (
            [i.name for i in handle.model.graph.input],
            len(handle.model.graph.initializer),
        )

    threads = [threading.Thread(target=build, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert found == {"a": (["a"], 1), "b": (["b"], 1)}
    with theirs.empty_base():  # the loan is over
        pass


def test_a_failed_block_leaves_nothing_open(theirs):
    for opener, guest in openers(theirs):
        with pytest.raises(Exception, match="nothing_of_that_name"), opener.base(model()):
            guest.blocks.Neg()("nothing_of_that_name")
        with opener.base(model()), pytest.raises(LookupError, match="Could not find input or out"):
            guest.blocks.InputLike("nothing_of_that_name")("target")


def test_the_library_of_custom_operators_is_theirs_too(theirs, tmp_path):
    (tmp_path / "library.so").write_text("no library")
    block = training(theirs, theirs)
    block.requires_grad("w")
    with (
        blockdsl.base(model()),
        blockdsl.custom_op_library(tmp_path / "library.so"),
        pytest.raises(Exception, match=r"library\.so"),
    ):
        block("y", "z")
    with theirs.custom_op_library(tmp_path / "library.so"):
        pass


def test_ours_counts_as_one_of_theirs(theirs):
    assert isinstance(blockdsl.loss.MSELoss(), theirs.Block)
    assert not isinstance(theirs.loss.MSELoss(), blockdsl.Block)


@pytest.mark.parametrize("first", ["blockdsl", "onnxruntime.training.onnxblock"])
def test_the_order_of_imports_does_not_matter(first):
    second = {"blockdsl": "onnxruntime.training.onnxblock"}.get(first, "blockdsl")
    code = f"""
import {first}, {second}
import blockdsl, onnxruntime.training.onnxblock as theirs
with theirs.empty_base(opset_version=17) as handle:
    assert isinstance(blockdsl.blocks.Constant(1.0), theirs.Block)
    blockdsl.blocks.Constant(1.0)()
with blockdsl.empty_base() as other:
    theirs.blocks.Constant(1.0)()
assert len(handle.model.graph.initializer) == len(other.model.graph.initializer) == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
