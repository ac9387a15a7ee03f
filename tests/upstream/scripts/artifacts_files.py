"""The four files of every loss and optimizer that have a name: inputs, outputs, opsets."""

import os

import onnx
from onnxruntime.training import artifacts

from tests.upstream.models import mlp, names

results = {}
for loss in artifacts.LossType:
    for optimizer in artifacts.OptimType:
        folder = f"{loss.name}-{optimizer.name}"
        os.mkdir(folder)
        returned = artifacts.generate_artifacts(
            mlp(),
            requires_grad=["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"],
            loss=loss,
            optimizer=optimizer,
            artifact_directory=folder,
        )
        models = {
            name: onnx.load(os.path.join(folder, f"{name}.onnx"))
            for name in ("training_model", "eval_model", "optimizer_model")
        }
        results[folder] = {
            "returned": returned,
            "files": sorted(os.listdir(folder)),
            "inputs": {name: names(model.graph.input) for name, model in models.items()},
            "gradients": names(models["training_model"].graph.output)[1:],
            "eval outputs": len(models["eval_model"].graph.output),
            "opsets": [
                o.version for model in models.values() for o in model.opset_import if o.domain == ""
            ],
        }
