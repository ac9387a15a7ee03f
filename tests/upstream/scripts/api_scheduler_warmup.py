"""LinearLRScheduler as its docstring calls it: a warm-up, then a decay."""

from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, LinearLRScheduler, Module, Optimizer

from tests.upstream.models import batch, labels, mlp

results = {}
for warmup, total in ((1, 4), (0, 5)):
    artifacts.generate_artifacts(
        mlp(),
        requires_grad=["fc1.weight", "fc2.bias"],
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.SGD,
    )
    state = CheckpointState.load_checkpoint("checkpoint")
    model = Module("training_model.onnx", state)
    optimizer = Optimizer("optimizer_model.onnx", model)
    scheduler = LinearLRScheduler(
        optimizer, warmup_step_count=warmup, total_step_count=total, initial_lr=0.1
    )
    rates = [optimizer.get_learning_rate()]
    for _ in range(5):
        model(batch(), labels())
        optimizer.step()
        scheduler.step()
        model.lazy_reset_grad()
        rates.append(optimizer.get_learning_rate())
    results[f"{warmup} of {total}"] = rates
