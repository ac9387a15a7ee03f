"""The artifacts in the training API's own classes, with nothing of blockdsl in between."""

import numpy as np
import pytest
from onnxruntime.capi import _pybind_state as C  # noqa: N812
from onnxruntime.capi.onnxruntime_inference_collection import get_ort_device_type

from blockdsl import artifacts, optim
from tests.test_zoo_training import ZooLoss, losses_of
from tests.zoo import ENTRIES

NAMES = (
    "mlp.legacy",
    "lenet.dynamo",
    "hf_resnet.legacy",
    "nn_transformer.dynamo",
    "lstm_classifier.legacy",
)
STEPS = 4


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.name in NAMES], ids=str)
def test_losses_equal_those_of_both_engines(entry, tmp_path):
    artifacts.generate_artifacts(
        entry.model,
        requires_grad=entry.parameters,
        loss=ZooLoss(entry),
        optimizer=optim.AdamW(),
        artifact_directory=tmp_path,
    )
    expected = c_losses(entry, tmp_path)
    assert np.isfinite(expected).all()
    for engine in ("session", "training"):
        losses, _ = losses_of(entry, tmp_path, engine, STEPS)
        np.testing.assert_allclose(losses, expected, rtol=1e-4)


def c_losses(entry, folder):
    state = C.load_checkpoint(str(folder / "checkpoint"))
    device = C.OrtDevice(get_ort_device_type("cpu", 0), C.OrtDevice.default_memory(), 0)
    options = C.SessionOptions()
    module = C.Module(
        str(folder / "training_model.onnx"),
        state,
        str(folder / "eval_model.onnx"),
        device,
        options,
    )
    optimizer = C.Optimizer(str(folder / "optimizer_model.onnx"), state, device, options)
    losses = []
    for step in range(STEPS):
        feeds = entry.feeds(step % 2)
        fetched = C.OrtValueVector()
        module.train_step([feeds[name] for name in module.input_names(True)], fetched)
        (loss,) = fetched
        losses.append(float(loss.numpy()))
        optimizer.optimizer_step()
        module.lazy_reset_grad()
    return losses
