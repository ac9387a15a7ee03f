"""Evaluation mode: which outputs, inputs and attributes the nodes of evaluation models have.

The attribute `training_mode` of BatchNormalization used to be removed: readers of evaluation
models, the tests of onnxruntime-training among them, look for it and expect 0.
"""

import onnx
import pytest
from onnx import helper

from blockdsl.api import CheckpointState, Module
from blockdsl.blocks import BatchNorm, Dropout
from blockdsl.graph.evaluation_mode import to_evaluation_mode
from blockdsl.graph.schema import MICROSOFT
from blockdsl.graph.walk import all_nodes
from tests.runs import forward, generate, weight


def attributes(node):
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


INTERNAL = (MICROSOFT, "BatchNormInternal")
NODES = {
    # operator, attributes, outputs: the attribute in evaluation mode, None if it is absent
    "opset 14": (("", "BatchNormalization"), {"training_mode": 1}, "ymv", 0),
    "opset 14, in evaluation mode already": (
        ("", "BatchNormalization"), {"training_mode": 0}, "y", 0
    ),
    "opset 14, in evaluation mode by default": (("", "BatchNormalization"), {}, "y", None),
    "opset 9": (("", "BatchNormalization"), {}, "ymvab", None),
    "onnxruntime-training's": (INTERNAL, {"training_mode": 1}, "ymvab", None),
}  # fmt: skip


@pytest.mark.parametrize("kind", NODES)
@pytest.mark.parametrize("nested", [False, True])
def test_batch_normalisation(kind, nested):
    (domain, op_type), given, outputs, expected = NODES[kind]
    settings = {"epsilon": 0.5, **given}
    node = helper.make_node(op_type, list("xsbmv"), list(outputs), domain=domain, **settings)
    if nested:
        body = helper.make_graph([node], "then", [], [])
        node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    to_evaluation_mode([node])
    found = [n for n in all_nodes([node]) if n.op_type != "If"]
    for inner in found:
        assert (inner.domain, inner.op_type) == ("", "BatchNormalization")
        assert list(inner.output) == ["y"]
        mode = {} if expected is None else {"training_mode": expected}
        assert attributes(inner) == {"epsilon": 0.5, **mode}


@pytest.mark.parametrize("inputs", [["x"], ["x", "ratio"], ["x", "ratio", "mode"]])
def test_dropout(inputs):
    node = helper.make_node("Dropout", inputs, ["y"])
    to_evaluation_mode([node])
    assert list(node.input) == [*inputs[:2], *("" for _ in inputs[2:])]


@pytest.mark.parametrize("opset", [13, 14, 17])
def test_evaluation_models_and_models_exported_from_training_models(opset, engine, tmp_path):
    def build(x):
        return Dropout(0.5)(BatchNorm(3)(x) * weight("w", 3, 1, 1)).mean(axis=(1, 2, 3))

    generate(tmp_path, forward(build, ("batch", 3, 4, 4), opset=opset))
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint", engine=engine)
    evaluation, exported = tmp_path / "eval_model.onnx", tmp_path / "exported.onnx"
    # Before opset 14 a training model has no BatchNormalization that could be switched.
    module = Module(tmp_path / "training_model.onnx", state, evaluation if opset < 14 else None)
    scores = next(n for n in onnx.load(evaluation).graph.node if n.op_type == "ReduceMean")
    module.export_model_for_inferencing(exported, [scores.output[0]])
    for path in (evaluation, exported):
        (node,) = (n for n in onnx.load(path).graph.node if n.op_type == "BatchNormalization")
        assert len(node.output) == 1
        assert attributes(node).get("training_mode") == (0 if opset >= 14 else None)
