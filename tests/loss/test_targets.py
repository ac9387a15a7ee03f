"""The target of a loss: a new input, an input that another block has added, or the named tensor.

A model that had an input `labels` or `target` of its own used to lose it, silently, to a loss with
the default name of its target.
"""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import blockdsl
from blockdsl import artifacts, loss
from blockdsl.blocks import InputLike
from blockdsl.errors import GraphError, LossError, UnknownNameError
from tests.runs import Run, generate

LOSSES = {
    # a loss: the argument that names its target, the default name, the type of the target
    "MSELoss": (loss.MSELoss(), "target_name", "target", np.float32),
    "L1Loss": (loss.L1Loss(), "target_name", "target", np.float32),
    "BCEWithLogitsLoss": (loss.BCEWithLogitsLoss(), "target_name", "target", np.float32),
    "CrossEntropyLoss": (loss.CrossEntropyLoss(), "labels_name", "labels", np.int64),
    "NLLLoss": (loss.NLLLoss(), "labels_name", "labels", np.int64),
}
KINDS = ["input", "input of another type", "input of another shape", "tensor", "initializer"]


def model(name, kind, dtype=np.float32):
    """x [N, 3] -> scores [N, 3], computed with a tensor of that name."""
    node = helper.make_node
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])]
    weights = [numpy_helper.from_array(np.eye(3, dtype=np.float32), "w")]
    nodes = [node("MatMul", ["x", "w"], ["h"])]
    shape = ["N", 3] if dtype == np.float32 else ["N"]
    if kind == "tensor":
        nodes += [node("Relu", ["h"], [name]), node("Neg", [name], ["scores"])]
    else:
        nodes += [
            node("Cast", [name], ["number"], to=TensorProto.FLOAT),
            node("ReduceSum", ["number"], ["sum"], keepdims=0),
            node("Add", ["h", "sum"], ["scores"]),
        ]
    if kind == "initializer":
        weights.append(numpy_helper.from_array(np.zeros([4, 3][: len(shape)], dtype), name))
    elif kind != "tensor":
        changed = {"input of another type": TensorProto.DOUBLE}
        elem_type = changed.get(kind, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
        shape = [*shape, 2] if kind == "input of another shape" else shape
        inputs.append(helper.make_tensor_value_info(name, elem_type, shape))
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 3])
    graph = helper.make_graph(nodes, "net", inputs, [scores], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LOSSES)
def test_a_tensor_of_the_model_with_the_default_name(name, kind):
    block, argument, default, dtype = LOSSES[name]
    forward = model(default, kind, dtype)
    scores = "scores"
    words = (
        rf"The model has an? (input|tensor) '{default}' of its own, .*, and that is the default "
        rf"name of the target of {name}\. If it is the target, say so: {argument}='{default}', or "
        rf"in generate_artifacts loss_input_names=\['{scores}', '{default}'\]\. If not, name the "
        rf"target: {argument}='{default}2', or loss_input_names=\['{scores}', '{default}2'\]\."
    )
    with blockdsl.base(forward), pytest.raises(GraphError, match=words):
        block(scores)
    with blockdsl.base(forward) as handle:
        block(scores, **{argument: f"{default}2"})
        assert handle.model.graph.input[-1].name == f"{default}2"


def test_an_output_that_is_called_target():
    """The prediction was compared with itself."""
    forward = model("h2", "tensor")
    forward.graph.node[-1].output[0] = forward.graph.output[0].name = "target"
    words = (
        r"would compare 'target' with itself\. Name the target: \w+_name='target2', or in "
        r"generate_artifacts loss_input_names=\['target', 'target2'\]"
    )
    for block, *explicit in (
        (loss.MSELoss(),),
        (loss.MSELoss(), "target"),
        (loss.NLLLoss(), "target"),
    ):
        with blockdsl.base(forward), pytest.raises(LossError, match=words):
            block("target", *explicit)


@pytest.mark.parametrize("name", LOSSES)
def test_the_own_input_is_the_target_if_it_is_named(name, engine, tmp_path):
    block, _, default, dtype = LOSSES[name]
    forward = model(default, "input", dtype)
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    target = np.array([0, 1, 2, 0]) if dtype == np.int64 else np.eye(4, 3, dtype=np.float32)
    found = {}
    for target_name in (default, "other"):
        folder = tmp_path / target_name
        generate(folder, forward, loss=block, loss_input_names=["scores", target_name])
        run = Run(folder, engine)
        own = ["x", default]
        assert run.module.input_names() == (own if target_name == default else [*own, "other"])
        feeds = {"x": x, default: target, "other": target}
        found[target_name] = float(run.module(*(feeds[n] for n in run.module.input_names())))
    assert found[default] == pytest.approx(found["other"])


def test_what_blocks_of_the_same_build_share():
    """Two losses, an input appended by hand, `InputLike` and `input_like`: as in onnxblock."""

    class Both(blockdsl.ForwardBlock):
        def build(self, scores):
            labels = onnx.ValueInfoProto(name="labels")
            labels.type.CopyFrom(helper.make_tensor_type_proto(TensorProto.INT64, ["N"]))
            self.base.graph.input.append(labels)
            target = InputLike(scores)("target")
            assert blockdsl.input_like(scores, "target") == target
            entropies = loss.CrossEntropyLoss()(scores) + loss.CrossEntropyLoss()(scores)
            return entropies + loss.MSELoss()(scores) + loss.L1Loss()(scores)

    block = Both()
    with blockdsl.base(model("own", "input")):
        block("scores")
    inputs = [i.name for i in block.to_model_proto().graph.input]
    assert inputs == ["x", "own", "labels", "target"]


@pytest.mark.parametrize("kind", ["input", "tensor", "initializer"])
def test_input_like_does_not_take_a_tensor_of_the_model(kind):
    forward = model("mask", kind)
    words = (
        r"The model has an? (input|tensor) 'mask' of its own, float32.*, and an input like "
        r".* was to be added under that name\. Give the input another name; or, if that tensor is "
        r"meant, write its name"
    )
    for add in (blockdsl.input_like, lambda like, name: InputLike(like)(name)):
        with blockdsl.base(forward), pytest.raises(GraphError, match=words):
            add("scores", "mask")


MSE = artifacts.LossType.MSELoss
NAMES = {
    # settings: the outputs of the evaluation model after the loss, or the error
    "an output twice": ({"additional_output_names": ["scores", "scores"]}, ["scores"]),
    "the target": ({"additional_output_names": ["target", "scores"]}, ["target", "scores"]),
    "an input twice": ({"additional_output_names": ["x", "scores", "x"]}, ["x", "scores"]),
    "unknown": (
        {"additional_output_names": ["scores", "score"]},
        r"additional_output_names: The provided name score is not a graph value info or a graph "
        r"output\. Did you mean 'scores'\?",
    ),
    "the loss, which the model has": (
        {"loss": None, "additional_output_names": ["loss", "scores", "loss"]},
        ["scores"],
    ),
    "unknown to the loss": (
        {"loss_input_names": ["score", "target"]},
        r"loss_input_names: The provided name score is not a graph value info or a graph output\. "
        r"Did you mean 'scores'\?",
    ),
    "the prediction twice": (
        {"loss_input_names": ["scores", "scores"]},
        r"MSELoss would compare 'scores' with itself",
    ),
}


@pytest.mark.parametrize("case", NAMES)
def test_each_name_once(case, engine, tmp_path):
    """A name that was given twice was an output twice: an IndexError of the runtime's."""
    settings, expected = NAMES[case]

    forward = model("own", "tensor")
    if "loss" in settings:
        forward.graph.node.append(helper.make_node("ReduceMean", ["scores"], ["loss"], keepdims=0))
        forward.graph.output.insert(0, helper.make_tensor_value_info("loss", TensorProto.FLOAT, []))
    if isinstance(expected, str):
        with pytest.raises((UnknownNameError, LossError), match=expected):
            generate(tmp_path, forward, **settings)
        return
    generate(tmp_path, forward, **settings)
    run = Run(tmp_path, engine)
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    feeds = {"x": x, "target": 2 * x}
    outputs = run.evaluate(*(feeds[name] for name in run.module.input_names()))
    assert run.module.eval().output_names()[1:] == expected
    known = {**feeds, "scores": -np.maximum(x, 0)}
    for name, output in zip(expected, outputs[1:], strict=True):
        np.testing.assert_array_equal(output, known[name])


@pytest.mark.parametrize("base_class", [blockdsl.ForwardBlock, blockdsl.TrainingBlock])
def test_a_block_that_returns_a_tensor_twice(base_class):
    class Net(base_class):
        def build(self, x):
            y = x.square().mean()
            return y, y

    words = r"build\(\) returned 'Net/ReduceMean' twice, .* blockdsl\.op\.Identity"
    with blockdsl.empty_base(), pytest.raises(GraphError, match=words):
        Net()(blockdsl.input("x", shape=("N", 3)))
