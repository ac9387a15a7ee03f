"""The artifacts in the training API's own classes, with nothing of blockdsl in between."""

import numpy as np
import pytest
from onnxruntime.capi import _pybind_state as C  # noqa: N812
from onnxruntime.capi.onnxruntime_inference_collection import get_ort_device_type

from blockdsl import artifacts, optim
from tests.test_zoo_training import ZooLoss, losses_of
from tests.upstream.forwards import FORWARDS, STEPS
from tests.upstream.ours import generate, golden
from tests.zoo import ENTRIES

NAMES = (
    "mlp.legacy",
    "lenet.dynamo",
    "hf_resnet.legacy",
    "nn_transformer.dynamo",
    "lstm_classifier.legacy",
)


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.name in NAMES], ids=str)
def test_losses_equal_those_of_both_engines(entry, tmp_path):
    artifacts.generate_artifacts(
        entry.model,
        requires_grad=entry.parameters,
        loss=ZooLoss(entry),
        optimizer=optim.AdamW(),
        artifact_directory=tmp_path,
    )
    steps = 4
    expected = c_losses(tmp_path, lambda step: entry.feeds(step % 2), steps)
    assert np.isfinite(expected).all()
    for engine in ("session", "training"):
        losses, _ = losses_of(entry, tmp_path, engine, steps)
        np.testing.assert_allclose(losses, expected, rtol=1e-4)


@pytest.mark.parametrize("forward", FORWARDS, ids=str)
def test_losses_equal_those_over_its_own_artifacts(forward, tmp_path):
    generate(forward, tmp_path)

    def feeds(step):
        x, target = forward.batch(step)
        return {"x": x, "labels": target, "target": target}

    losses = c_losses(tmp_path, feeds, STEPS, forward.rate, forward.prefix)
    np.testing.assert_allclose(losses, golden(forward)["losses"], rtol=1e-4)


def c_losses(folder, feeds, steps, rate=None, prefix=""):
    def path(name):
        return str(folder / f"{prefix}{name}")

    state = C.load_checkpoint(path("checkpoint"))
    device = C.OrtDevice(get_ort_device_type("cpu", 0), C.OrtDevice.default_memory(), 0)
    options = C.SessionOptions()
    models = [path(f"{kind}_model.onnx") for kind in ("training", "eval", "optimizer")]
    module = C.Module(models[0], state, models[1], device, options)
    optimizer = C.Optimizer(models[2], state, device, options)
    if rate is not None:
        optimizer.set_learning_rate(rate)
    losses = []
    for step in range(steps):
        fed = feeds(step)
        fetched = C.OrtValueVector()
        module.train_step([fed[name] for name in module.input_names(True)], fetched)
        (loss,) = fetched
        losses.append(float(loss.numpy()))
        optimizer.optimizer_step()
        module.lazy_reset_grad()
    return losses
