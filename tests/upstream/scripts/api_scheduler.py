"""LinearLRScheduler, with as many steps of warm-up as of all: the rate of every step."""

from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, LinearLRScheduler, Module, Optimizer

from tests.upstream.models import batch, labels, mlp

artifacts.generate_artifacts(
    mlp(),
    requires_grad=["fc1.weight", "fc2.bias"],
    loss=artifacts.LossType.CrossEntropyLoss,
    optimizer=artifacts.OptimType.AdamW,
)
state = CheckpointState.load_checkpoint("checkpoint")
model = Module("training_model.onnx", state)
optimizer = Optimizer("optimizer_model.onnx", model)
scheduler = LinearLRScheduler(optimizer, 4, 4, 0.2)
rates, losses = [optimizer.get_learning_rate()], []
scheduler.step()
rates.append(optimizer.get_learning_rate())
for _ in range(6):
    losses.append(model(batch(), labels()))
    optimizer.step()
    scheduler.step()
    model.lazy_reset_grad()
    rates.append(optimizer.get_learning_rate())
results = {"rates": rates, "losses": losses}
