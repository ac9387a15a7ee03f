"""What generate_artifacts makes of what it is not told, or told wrongly."""

from onnxruntime.training import artifacts

from tests.upstream.models import error_of, mlp, two_heads


def generate(model, **settings):
    return lambda: artifacts.generate_artifacts(
        model, loss=artifacts.LossType.MSELoss, **{"requires_grad": [], **settings}
    )


adamw = artifacts.OptimType.AdamW
results = {
    "no word on what is trained": error_of(generate(mlp(), requires_grad=None, optimizer=adamw)),
    "an unknown frozen parameter": error_of(generate(mlp(), frozen_params=["nothing"])),
    "two outputs, one loss": error_of(generate(two_heads(), requires_grad=["near.bias"])),
}
