"""The learning rate: where it starts, and setting it."""

from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream.models import batch, labels, mlp

results = {}
for kind in artifacts.OptimType:
    artifacts.generate_artifacts(
        mlp(),
        requires_grad=["fc1.weight", "fc2.bias"],
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=kind,
    )
    state = CheckpointState.load_checkpoint("checkpoint")
    model = Module("training_model.onnx", state)
    optimizer = Optimizer("optimizer_model.onnx", model)
    rates, biases = [optimizer.get_learning_rate()], []
    for rate in (0.5, 0.0, -0.25):
        optimizer.set_learning_rate(rate)
        rates.append(optimizer.get_learning_rate())
        model(batch(), labels())
        optimizer.step()
        model.lazy_reset_grad()
        biases.append(state.parameters["fc2.bias"].data.copy())
    results[kind.name] = {"rates": rates, "biases": biases}
