"""What generate_artifacts refuses."""

import os

import onnxruntime.training.onnxblock as onnxblock
from onnxruntime.training import artifacts

from tests.upstream.models import error_of, mlp


def generate(model=None, requires_grad=("fc1.weight",), **settings):
    return lambda: artifacts.generate_artifacts(
        model or mlp(), list(requires_grad), **{"loss": artifacts.LossType.MSELoss, **settings}
    )


results = {
    "model": error_of(
        generate(model=b"bytes"),
        "Please pass in either a string or an ONNX ModelProto for the model",
    ),
    "loss": error_of(generate(loss="MSELoss"), "Unknown loss provided"),
    "loss class": error_of(generate(loss=onnxblock.loss.MSELoss), "Unknown loss provided"),
    "optimizer": error_of(generate(optimizer="AdamW"), "Unknown optimizer provided"),
    "both": error_of(
        generate(frozen_params=["fc1.weight"]),
        "A parameter cannot be frozen and require gradient computation at the same time",
        "fc1.weight",
    ),
    "unknown parameter": error_of(
        generate(requires_grad=["fc9.weight"]), "Node arg fc9.weight is not found in the graph."
    ),
    "library": error_of(generate(custom_op_library="missing.so"), "does not exist"),
    "nothing to train": error_of(generate(requires_grad=[], optimizer=artifacts.OptimType.AdamW)),
    "scores of no classes": error_of(generate(loss_input_names=["nothing"])),
}
results["left behind"] = sorted(name for name in os.listdir(".") if not name.startswith("."))
