"""Against onnxruntime-training itself, its Python package included: that needs torch.

`tests/data/upstream` holds what it makes of a few models for where it does not import.
"""

from __future__ import annotations

import copy

import numpy as np
import onnx
import pytest
from onnxruntime.training import artifacts, onnxblock

from blockdsl.api import CheckpointState, Module
from blockdsl.errors import EngineError
from blockdsl.training_ops import BODIES
from tests.training_ops.test_operators import EMITTED
from tests.upstream import ours, theirs
from tests.upstream.forwards import FORWARDS, STEPS
from tests.upstream.layers import LAYERS

forwards = pytest.mark.parametrize("forward", FORWARDS, ids=str)


@forwards
def test_it_trains_our_artifacts_as_its_own(forward, tmp_path):
    ours.generate(forward, tmp_path)
    found, expected = theirs.train(forward, tmp_path), ours.golden(forward)
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-4)
    if forward.name != "batch_norm":  # of which it does not learn the running statistics
        np.testing.assert_allclose(found["eval"], expected["eval"], rtol=1e-4)


@forwards
def test_we_train_its_artifacts_as_it_does(forward, engine, tmp_path):
    theirs.generate(forward, tmp_path / forward.name)
    expected = theirs.train(forward, tmp_path / forward.name)
    np.testing.assert_allclose(expected["losses"], ours.golden(forward)["losses"], rtol=1e-5)
    check_losses(forward, engine, tmp_path, expected["losses"])


@pytest.mark.parametrize(
    "optimizer",
    [
        onnxblock.optim.AdamW(weight_decay=0.1, clip_grad=onnxblock.optim.ClipGradNorm(0.05)),
        onnxblock.optim.SGD(clip_grad=onnxblock.optim.ClipGradNorm(0.05)),
        onnxblock.optim.AdamW(bias_correction=False, betas=(0.5, 0.75), eps=1e-3),
    ],
    ids=["adamw-clipped", "sgd-clipped", "adamw-settings"],
)
def test_its_optimizers_step_as_there(optimizer, engine, tmp_path):
    forward = FORWARDS[0]
    theirs.generate(forward, tmp_path / forward.name, optimizer)
    expected = theirs.train(forward, tmp_path / forward.name)["losses"]
    assert np.abs(expected - ours.golden(forward)["losses"]).max() > 1e-4
    check_losses(forward, engine, tmp_path, expected)


# Its converter leaves files open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_its_models_in_the_ort_format(tmp_path):
    forward = FORWARDS[0]
    artifacts.generate_artifacts(
        forward.model,
        requires_grad=forward.trained,
        frozen_params=list(forward.frozen),
        loss=artifacts.LossType[forward.loss],
        artifact_directory=tmp_path,
        ort_format=True,
    )
    models = [tmp_path / f"{kind}_model.ort" for kind in ("training", "eval")]
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint", engine="training")
    loss = Module(models[0], state, models[1])(*forward.batch(0))
    np.testing.assert_allclose(loss, ours.golden(forward)["losses"][0], rtol=1e-5)
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint", engine="session")
    with pytest.raises(EngineError, match=r"training_model.ort' is in the \.ort format"):
        Module(models[0], state)


def check_losses(forward, engine, folder, expected):
    _, module, optimizer = ours.opened(forward, engine, folder=folder)
    optimizer.set_learning_rate(forward.rate)
    losses = ours.train(forward, module, optimizer, range(STEPS))
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


# -- every operator that it differentiates ---------------------------------------------------------


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_the_gradient_of_each_operator_is_its_own(layer, tmp_path):
    model = layer.model
    artifacts.generate_artifacts(
        copy.deepcopy(model),
        requires_grad=list(layer.weights),
        loss=artifacts.LossType[layer.loss],
        artifact_directory=tmp_path,
    )
    nodes = onnx.load(tmp_path / "training_model.onnx").graph.node
    special = {n.op_type for n in nodes if n.domain or ("", n.op_type) in BODIES}
    assert special <= {*EMITTED, "InPlaceAccumulatorV2"}
    x = np.random.default_rng(0).uniform(0.2, 0.9, layer.x).astype(np.float32)
    shape = [d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim]
    target = np.zeros(shape, np.float32)
    if layer.loss == "CrossEntropyLoss":
        target = np.arange(shape[0])
    session = gradients(tmp_path, "session", x, target)
    assert all(np.abs(value).max() > 0 for value in session.values())
    if layer.runs:
        for name, value in gradients(tmp_path, "training", x, target).items():
            np.testing.assert_allclose(session[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def gradients(folder, engine, *batch):
    """The gradients of the parameters, and the loss."""
    state = CheckpointState.load_checkpoint(folder / "checkpoint", engine=engine)
    loss = Module(folder / "training_model.onnx", state)(*batch)
    return {"loss": np.asarray(loss), **{n: p.grad.copy() for n, p in state.parameters}}
