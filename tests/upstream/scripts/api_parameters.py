"""Parameters by name: reading, writing, gradients, and what is refused."""

import numpy as np
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module

from tests.upstream.models import batch, error_of, labels, mlp

artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc1.weight", "fc1.bias", "fc2.weight"],
    frozen_params=["fc2.bias"],
    loss=artifacts.LossType.CrossEntropyLoss,
)
state = CheckpointState.load_checkpoint("checkpoint")
parameters = state.parameters
before_module = parameters["fc1.bias"].grad
model = Module("training_model.onnx", state, "eval_model.onnx")
before_step = parameters["fc1.bias"].grad.copy()
frozen = parameters["fc2.bias"].grad
first = model(batch(), labels())
after_step = parameters["fc1.bias"].grad.copy()
parameters["fc1.bias"] = np.full(8, 0.25, np.float32)
parameters["fc2.bias"].data = np.zeros(3, np.float32)
second = model(batch(), labels())
bias = parameters["fc1.bias"]
missing = "Parameter nothing not found."
results = {
    "count": len(parameters),
    "contains": ["fc1.weight" in parameters, "nothing" in parameters],
    "names": sorted(name for name, _ in parameters),
    "one": [bias.name, bias.requires_grad, parameters["fc2.bias"].requires_grad, repr(bias)],
    "gradients": [before_module, before_step, frozen, after_step],
    "losses": [first, second],
    "values": [bias.data, parameters["fc2.bias"].data],
    "shown": error_of(lambda: repr(parameters)),
    "missing": error_of(lambda: parameters["nothing"], missing),
    "missing on writing": error_of(lambda: parameters.__setitem__("nothing", bias.data), missing),
    "shape": error_of(
        lambda: parameters.__setitem__("fc1.bias", np.zeros(3, np.float32)), "shape mismatch"
    ),
    "type": error_of(
        lambda: parameters.__setitem__("fc1.bias", np.zeros(8, np.float64)), "type mismatch"
    ),
    "gradients are read only": error_of(lambda: setattr(bias, "grad", bias.data)),
}
