"""Inference models made of training models, where there is no eval model."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, parser

import blockdsl
from blockdsl import artifacts, blocks
from blockdsl.api import CheckpointState, Module, Optimizer
from blockdsl.backend.forward import forward_model
from blockdsl.errors import EngineError

X = np.random.default_rng(0).normal(size=(8, 2, 6, 6)).astype(np.float32)
LABELS = np.random.default_rng(1).integers(0, 3, 8)


def generate(folder, opset=17):
    """A network of batch normalisation and dropout, with a head that the loss does not see."""
    with blockdsl.empty_base(opset_version=opset) as handle:
        body = blocks.Sequential(
            blocks.Conv(2, 4, 3),
            blocks.BatchNorm(4),
            blocks.Relu(),
            blocks.GlobalAveragePool(),
            blocks.Flatten(),
            blocks.Dropout(0.5),
        )
        hidden = body(blockdsl.input("x", shape=("batch", 2, 6, 6)))
        scores, other = blocks.Linear(4, 3)(hidden), blocks.Linear(4, 2)(hidden)
        blockdsl.graph.current().set_outputs([scores, other])
    artifacts.generate_artifacts(
        handle.model,
        loss=artifacts.LossType.CrossEntropyLoss,
        loss_input_names=[str(scores)],
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory=folder,
    )
    return str(scores), str(other)


def trained(folder, engine):
    state = CheckpointState.load_checkpoint(folder / "checkpoint", engine=engine)
    module = Module(folder / "training_model.onnx", state)
    optimizer = Optimizer(folder / "optimizer_model.onnx", module)
    for _ in range(3):
        module(X, LABELS)
        optimizer.step()
        module.lazy_reset_grad()
    return state, module


def predictions(path):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [value.name for value in session.get_inputs()] == ["x"]
    return session.run(None, {"x": X})


def test_dropout_and_batch_normalisation_are_turned_to_inference(tmp_path, engine):
    names = generate(tmp_path)
    state, module = trained(tmp_path, engine)
    module.export_model_for_inferencing(tmp_path / "alone.onnx", names)
    with_eval = Module(tmp_path / "training_model.onnx", state, tmp_path / "eval_model.onnx")
    with_eval.export_model_for_inferencing(tmp_path / "both.onnx", names)
    for found, expected in zip(
        predictions(tmp_path / "alone.onnx"), predictions(tmp_path / "both.onnx"), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    onnx.checker.check_model(tmp_path / "alone.onnx", full_check=True)
    assert {n.op_type for n in onnx.load(tmp_path / "alone.onnx").graph.node} >= {
        "BatchNormalization",
        "Dropout",
    }


def test_a_model_is_not_exported_over_the_one_that_it_is_made_of(tmp_path, engine):
    names = generate(tmp_path)
    state, module = trained(tmp_path, engine)
    with_eval = Module(tmp_path / "training_model.onnx", state, tmp_path / "eval_model.onnx")
    (tmp_path / "link.onnx").symlink_to(tmp_path / "eval_model.onnx")
    before = (tmp_path / "eval_model.onnx").read_bytes()
    for exporting, path in (
        (module, "training_model.onnx"),
        (with_eval, "eval_model.onnx"),
        (with_eval, "link.onnx"),
    ):
        with pytest.raises(EngineError, match=f"{path}' is the model that the inference model is"):
            exporting.export_model_for_inferencing(tmp_path / path, names)
    assert (tmp_path / "eval_model.onnx").read_bytes() == before


def test_batch_normalisation_in_other_operators_needs_the_eval_model(tmp_path, engine):
    names = generate(tmp_path, opset=12)
    _, module = trained(tmp_path, engine)
    with pytest.raises(EngineError, match=r"running statistic '.*running_mean' without"):
        module.export_model_for_inferencing(tmp_path / "alone.onnx", names)


UPSTREAM = """
<ir_version: 8, opset_import: ["": 15, "com.microsoft": 1]>
train (float[batch, 2, 6, 6] x, float[2] scale, float[2] bias, float[2] mean, float[2] var,
       float[2] "scale_grad.accumulation.buffer", bool[1] lazy_reset_grad)
   => (float loss, bool[1] "scale_grad.accumulation.out")
{
    y, mean2, var2, m, s = com.microsoft.BatchNormInternal<epsilon: float = 0.1>(
        x, scale, bias, mean, var)
    loss = ReduceMean<keepdims: int = 0>(y)
    g = Identity(m)
    "scale_grad.accumulation.out" = com.microsoft.InPlaceAccumulatorV2(
        "scale_grad.accumulation.buffer", g, lazy_reset_grad)
}
"""


def test_the_normalisation_of_onnxruntime_training():
    parameters = ["scale", "bias", "mean", "var"]
    model = forward_model(parser.parse_model(UPSTREAM), parameters)
    norm, loss = model.graph.node
    assert (norm.domain, norm.op_type, list(norm.output)) == ("", "BatchNormalization", ["y"])
    assert helper.get_node_attr_value(norm, "epsilon") == pytest.approx(0.1)
    assert loss.op_type == "ReduceMean"
    assert [value.name for value in model.graph.input] == ["x", *parameters]
    assert [value.name for value in model.graph.output] == ["loss"]
