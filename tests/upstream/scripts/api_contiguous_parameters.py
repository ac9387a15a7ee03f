"""The flat buffer of all parameters: taken, kept, put back."""

from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, labels, mlp

artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc1.weight", "fc2.weight"],
    frozen_params=["fc1.bias", "fc2.bias"],
    loss=artifacts.LossType.CrossEntropyLoss,
    optimizer=artifacts.OptimType.SGD,
)
state = CheckpointState.load_checkpoint("checkpoint")
model = Module("training_model.onnx", state, "eval_model.onnx")
optimizer = Optimizer("optimizer_model.onnx", model)
results = {
    "sizes": [model.get_parameters_size(), model.get_parameters_size(trainable_only=False)],
    "all": model.get_contiguous_parameters().numpy(),
    "kind": [
        model.get_contiguous_parameters().device_name().lower(),
        model.get_contiguous_parameters().data_type(),
        list(model.get_contiguous_parameters(trainable_only=True).shape()),
    ],
}
for trainable_only in (True, False):
    buffer = model.get_contiguous_parameters(trainable_only)
    kept = buffer.numpy().copy()
    model(batch(), labels())
    optimizer.step()
    model.lazy_reset_grad()
    stepped = model.get_contiguous_parameters(trainable_only).numpy()
    model.copy_buffer_to_parameters(buffer, trainable_only)
    back = model.get_contiguous_parameters(trainable_only).numpy()
    results[f"trainable_only={trainable_only}"] = {
        "detached": bool((buffer.numpy() == kept).all()),
        "changed by the step": bool((stepped != kept).any()),
        "back": bool((back == kept).all()),
        "stepped": stepped,
    }
