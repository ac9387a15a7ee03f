"""What a Module refuses: wrong numbers, types and shapes of inputs, and devices."""

import numpy as np
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, error_of, labels, mlp

artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc1.weight", "fc2.weight"],
    loss=artifacts.LossType.CrossEntropyLoss,
    optimizer=artifacts.OptimType.AdamW,
)
state = CheckpointState.load_checkpoint("checkpoint")
model = Module("training_model.onnx", state, "eval_model.onnx", device="cpu")
before = model(batch(), labels())
results = {
    "too few": error_of(lambda: model(batch())),
    "too many": error_of(lambda: model(batch(), labels(), labels())),
    "type": error_of(lambda: model(batch().astype(np.float64), labels())),
    "labels of 32 bits": error_of(lambda: model(batch(), labels().astype(np.int32))),
    "rank": error_of(lambda: model(batch()[0], labels())),
    "size": error_of(lambda: model(batch()[:, :3], labels())),
    "keyword": error_of(lambda: model(x=batch(), labels=labels())),
    "device": error_of(lambda: Module("training_model.onnx", state, device="abacus")),
    "missing model": error_of(lambda: Module("missing.onnx", state)),
    "missing optimizer": error_of(lambda: Optimizer("missing.onnx", model)),
    "goes on": [before, model.eval()(batch(), labels())],
}
