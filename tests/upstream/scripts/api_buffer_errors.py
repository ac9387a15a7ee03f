"""What copy_buffer_to_parameters refuses."""

import numpy as np
import onnxruntime
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module

from tests.upstream.models import error_of, mlp

artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc1.weight", "fc2.weight"],
    frozen_params=["fc1.bias"],
    loss=artifacts.LossType.CrossEntropyLoss,
)
state = CheckpointState.load_checkpoint("checkpoint")
model = Module("training_model.onnx", state)
trainable = model.get_contiguous_parameters(True)
every = model.get_contiguous_parameters(False)
python_value = onnxruntime.OrtValue.ortvalue_from_numpy(trainable.numpy())
size = "Parameters buffer size incorrect."
results = {
    "array": error_of(lambda: model.copy_buffer_to_parameters(trainable.numpy())),
    "python OrtValue": error_of(lambda: model.copy_buffer_to_parameters(python_value)),
    "too large": error_of(lambda: model.copy_buffer_to_parameters(every, True), size),
    "too small": error_of(lambda: model.copy_buffer_to_parameters(trainable, False), size),
    "any rank": error_of(
        lambda: model.copy_buffer_to_parameters(
            onnxruntime.OrtValue.ortvalue_from_numpy(np.ones((7, 8), np.float32))._ortvalue
        )
    ),
    "written": [
        float(state.parameters["fc1.weight"].data.sum()),
        float(state.parameters["fc2.weight"].data.sum()),
    ],
}
