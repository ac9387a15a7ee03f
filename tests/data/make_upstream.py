"""Write upstream/<name>/: artifacts of onnxruntime-training 1.19.2, and its run over them.

Run it where `onnxruntime.training` imports, which needs torch, and with onnx 1.16: it stamps what
it makes with the newest IR version that onnx knows, and loads none that is newer than itself.
`PYTHONPATH=. python tests/data/make_upstream.py [names]`. The tests need the files alone.

A folder holds the artifacts, a nominal checkpoint, and run.npz: the losses of some steps, every
parameter after them as `after.<name>`, and the loss of the evaluation model then.
"""

import sys
from pathlib import Path

import numpy as np
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.upstream_models import FORWARDS, STEPS, Forward

HERE = Path(__file__).parent / "upstream"


def generate(forward: Forward, folder: Path) -> None:
    """Write the artifacts of a model."""
    folder.mkdir(parents=True, exist_ok=True)
    artifacts.generate_artifacts(
        forward.model,
        requires_grad=forward.trained,
        frozen_params=list(forward.frozen),
        loss=artifacts.LossType[forward.loss],
        optimizer=artifacts.OptimType[forward.optimizer],
        artifact_directory=folder,
        prefix=forward.prefix,
        nominal_checkpoint=True,
    )


def train(forward: Forward, folder: Path) -> dict[str, np.ndarray]:
    """Train artifacts by its own API."""
    files = {kind: str(path) for kind, path in forward.files(folder).items()}
    state = CheckpointState.load_checkpoint(files["checkpoint"])
    module = Module(files["training"], state, files["eval"])
    optimizer = Optimizer(files["optimizer"], module)
    optimizer.set_learning_rate(forward.rate)
    losses = []
    for step in range(STEPS):
        losses.append(float(module(*forward.batch(step))))
        optimizer.step()
        module.lazy_reset_grad()
    after = {f"after.{name}": np.array(parameter.data) for name, parameter in state.parameters}
    module.eval()
    return {"losses": np.array(losses), "eval": module(*forward.batch(0)), **after}


if __name__ == "__main__":
    for each in FORWARDS:
        if len(sys.argv) == 1 or each.name in sys.argv[1:]:
            generate(each, HERE / each.name)
            np.savez_compressed(HERE / each.name / "run.npz", **train(each, HERE / each.name))
