"""Models in the .ort format beside the .onnx files."""

import os

from onnxruntime.training import artifacts

from tests.upstream.models import mlp

artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc1.weight", "fc2.weight"],
    loss=artifacts.LossType.MSELoss,
    optimizer=artifacts.OptimType.SGD,
    ort_format=True,
)
results = {"files": sorted(name for name in os.listdir(".") if not name.endswith(".config"))}
