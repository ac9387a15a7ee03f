"""Artifacts that onnxruntime-training 1.19.2 generated train on every engine as they do there.

They, and its own run over them, lie in data/upstream; data/make_upstream.py makes them.
"""

from __future__ import annotations

import shutil

import numpy as np
import onnx
import onnxruntime
import pytest

from blockdsl.api import CheckpointState, Module
from blockdsl.backend.export import export_for_inference
from blockdsl.errors import EngineError
from tests.upstream.forwards import FORWARDS, STEPS
from tests.upstream.ours import DATA, generate, golden, opened, train

forwards = pytest.mark.parametrize("forward", FORWARDS, ids=str)


def check_end(forward, state, module):
    """Everything is where its own run ended."""
    expected = golden(forward)
    for name, parameter in state.parameters:
        np.testing.assert_allclose(
            parameter.data, expected[f"after.{name}"], rtol=1e-4, atol=1e-5, err_msg=name
        )
    loss = module.eval()(*forward.batch(0))
    np.testing.assert_allclose(loss, expected["eval"], rtol=1e-4)


@forwards
def test_its_artifacts_train_as_they_do_there(forward, engine):
    state, module, optimizer = opened(forward, engine)
    optimizer.set_learning_rate(forward.rate)
    losses = train(forward, module, optimizer, range(STEPS))
    np.testing.assert_allclose(losses, golden(forward)["losses"], rtol=1e-4)
    check_end(forward, state, module)
    assert {n for n, p in state.parameters if not p.requires_grad} == set(forward.frozen)


@forwards
def test_its_nominal_checkpoints_are_completed(forward, engine):
    _, complete, _ = opened(forward, engine)
    state, module, optimizer = opened(forward, engine, "nominal_checkpoint")
    with pytest.raises(EngineError, match="load the model parameters first"):
        module(*forward.batch(0))
    flat = complete.get_contiguous_parameters(trainable_only=False)
    module.copy_buffer_to_parameters(flat, trainable_only=False)
    optimizer.set_learning_rate(forward.rate)
    losses = train(forward, module, optimizer, range(STEPS))
    np.testing.assert_allclose(losses, golden(forward)["losses"], rtol=1e-4)
    check_end(forward, state, module)


@forwards
def test_a_run_over_them_is_resumed(forward, engine, tmp_path):
    state, module, optimizer = opened(forward, engine)
    optimizer.set_learning_rate(forward.rate)
    train(forward, module, optimizer, range(STEPS // 2))
    folder = tmp_path / forward.name
    shutil.copytree(DATA / forward.name, folder)
    path = forward.files(folder)["checkpoint"]
    CheckpointState.save_checkpoint(state, path, include_optimizer_state=True)
    state, module, optimizer = opened(forward, engine, folder=tmp_path)
    losses = train(forward, module, optimizer, range(STEPS // 2, STEPS))
    np.testing.assert_allclose(losses, golden(forward)["losses"][STEPS // 2 :], rtol=1e-4)
    check_end(forward, state, module)


@forwards
def test_our_artifacts_train_as_its_own(forward, engine, tmp_path):
    generate(forward, tmp_path / forward.name)
    _, module, optimizer = opened(forward, engine, folder=tmp_path)
    optimizer.set_learning_rate(forward.rate)
    losses = train(forward, module, optimizer, range(STEPS))
    np.testing.assert_allclose(losses, golden(forward)["losses"], rtol=1e-4)


def by_name(name):
    return next(forward for forward in FORWARDS if forward.name == name)


def test_their_gradients_accumulate(engine):
    forward = by_name("cnn")
    state, module, _ = opened(forward, engine)

    def gradients(*batches):
        module.lazy_reset_grad()
        for step in batches:
            module(*forward.batch(step))
        return {name: p.grad.copy() for name, p in state.parameters}

    first, second, both = gradients(0), gradients(1), gradients(0, 1)
    for name, total in both.items():
        np.testing.assert_allclose(total, first[name] + second[name], rtol=1e-4, atol=1e-6)


def test_their_evaluation_models_are_exported(engine, tmp_path):
    forward = by_name("transformer")
    _, module, optimizer = opened(forward, engine)
    module.export_model_for_inferencing(tmp_path / "before.onnx", ["y"])
    train(forward, module, optimizer, range(2))
    module.export_model_for_inferencing(tmp_path / "after.onnx", ["y"])
    (x, _), outputs = forward.batch(0), []
    for name in ("before", "after"):
        session = onnxruntime.InferenceSession(
            tmp_path / f"{name}.onnx", providers=["CPUExecutionProvider"]
        )
        assert [i.name for i in session.get_inputs()] == ["x"]
        outputs.append(session.run(["y"], {"x": x})[0])
    assert np.abs(outputs[0] - outputs[1]).max() > 0


@forwards
def test_without_their_evaluation_models_the_same_is_exported(forward, engine, tmp_path):
    state, module, _ = opened(forward, engine)
    module.export_model_for_inferencing(tmp_path / "eval.onnx", ["y"])
    training = Module(forward.files(DATA / forward.name)["training"], state)
    training.export_model_for_inferencing(tmp_path / "training.onnx", ["y"])
    (x, _), outputs = forward.batch(0), []
    for name in ("eval", "training"):
        path = tmp_path / f"{name}.onnx"
        onnx.checker.check_model(path, full_check=True)
        assert not {node.domain for node in onnx.load(path).graph.node} - {"", "ai.onnx"}
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        outputs.append(session.run(["y"], {"x": x})[0])
    np.testing.assert_array_equal(*outputs)


def changed(forward, tmp_path, change):
    """A copy of artifacts whose training model is changed."""
    folder = tmp_path / forward.name
    shutil.copytree(DATA / forward.name, folder)
    path = forward.files(folder)["training"]
    model = onnx.load(path)
    change(model)
    onnx.save(model, path)


def test_their_norm_over_several_tensors_is_computed(engine, tmp_path):
    """`onnxblock.blocks.ReduceAllL2` in a training model."""
    forward, names = by_name("cnn"), ["head_grad", "head_bias_grad"]

    def change(model):
        node = onnx.helper.make_node("ReduceAllL2", names, ["norm"], domain="com.microsoft")
        model.graph.node.append(node)
        model.graph.output.insert(1, onnx.helper.make_tensor_value_info("norm", 1, []))

    changed(forward, tmp_path, change)
    state, module, _ = opened(forward, engine, folder=tmp_path)
    _, norm = module(*forward.batch(0))
    grads = [state.parameters[name.removesuffix("_grad")].grad.ravel() for name in names]
    np.testing.assert_allclose(norm, np.linalg.norm(np.concatenate(grads)), rtol=1e-5)


# -- what cannot be opened -------------------------------------------------------------------------


def relu_grad(model):
    return next(node for node in model.graph.node if node.op_type == "ReluGrad")


@pytest.mark.parametrize(
    ("op_type", "domain", "message"),
    [
        (
            "PythonOpGrad",
            "com.microsoft",
            r"training_model.onnx': com.microsoft::PythonOpGrad \(node 'here'\) has no plain form: "
            r"it calls back into a Python program. The training engine may",
        ),
        (
            "NovelGrad",
            "com.microsoft",
            r"no operator com.microsoft::NovelGrad \(node 'here'\), of which blockdsl knows no "
            r"plain form",
        ),
        (
            "NovelGrad",
            "",
            r"cannot run the training model .*: Node 'here' \(NovelGrad\): No Op",
        ),
    ],
)
def test_an_operator_without_a_body_is_named(op_type, domain, message, tmp_path):
    forward = by_name("cnn")

    def change(model):
        node = relu_grad(model)
        node.op_type, node.domain, node.name = op_type, domain, "here"

    changed(forward, tmp_path, change)
    with pytest.raises(EngineError, match=message):
        opened(forward, "session", folder=tmp_path)


def test_an_operator_without_a_body_is_not_exported(tmp_path):
    forward = by_name("cnn")

    def change(model):
        node = next(node for node in model.graph.node if node.op_type == "Relu")
        node.op_type, node.domain, node.name = "ATen", "org.pytorch.aten", "here"

    changed(forward, tmp_path, change)
    files = forward.files(tmp_path / forward.name)
    message = r"of '.*training_model.onnx': org.pytorch.aten::ATen \(node 'here'\) has no plain"
    values = {t.name: onnx.numpy_helper.to_array(t) for t in forward.model.graph.initializer}
    with pytest.raises(EngineError, match=message):
        export_for_inference(
            files["training"], tmp_path / "made.onnx", ["y"], forward.weights, values.get
        )


def test_an_attribute_without_a_body_is_named(tmp_path):
    forward = by_name("cnn")

    def change(model):
        node = relu_grad(model)
        node.attribute.append(onnx.helper.make_attribute("slope", 1.0))
        node.name = "here"

    changed(forward, tmp_path, change)
    message = r"ReluGrad \(node 'here'\) has no plain form here. .* has the attribute 'slope'"
    with pytest.raises(EngineError, match=message):
        opened(forward, "session", folder=tmp_path)


def test_an_evaluation_model_that_it_cannot_load_either_is_explained(tmp_path):
    forward = by_name("batch_norm")
    folder = tmp_path / forward.name
    shutil.copytree(DATA / forward.name, folder)
    files = forward.files(folder)
    model = onnx.load(files["eval"])
    model.opset_import[0].version = 15
    (node,) = (n for n in model.graph.node if n.op_type == "BatchNormalization")
    node.output.extend(["new_mean", "new_var"])
    onnx.save(model, files["eval"])
    message = "eval model on 'cpu': a BatchNormalization in it evaluates and declares the outputs"
    with pytest.raises(EngineError, match=message):
        opened(forward, "session", folder=tmp_path)
    state = CheckpointState.load_checkpoint(files["checkpoint"], engine="session")
    loss = Module(files["training"], state)(*forward.batch(0))
    np.testing.assert_allclose(loss, golden(forward)["losses"][0], rtol=1e-4)


def test_its_models_in_the_ort_format_are_for_the_training_engine(tmp_path):
    forward = by_name("mlp")
    files = forward.files(DATA / forward.name)
    path = tmp_path / "training_model.ort"
    path.write_bytes(b"\x20\0\0\0ORTM" + bytes(32))  # how every file in that format begins
    state = CheckpointState.load_checkpoint(files["checkpoint"], engine="session")
    with pytest.raises(
        EngineError, match=r"is in the \.ort format, whose graph is fixed; the sess"
    ):
        Module(path, state)
