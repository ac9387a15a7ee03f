"""Properties: numbers and texts, saved with the checkpoint."""

import numpy as np
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState

from tests.upstream.models import error_of, mlp

artifacts.generate_artifacts(mlp(), requires_grad=["fc1.weight"], loss=artifacts.LossType.MSELoss)
state = CheckpointState.load_checkpoint("checkpoint")
empty = [len(state.properties), "epoch" in state.properties]
state.properties["epoch"] = 3
state.properties["loss"] = 0.1
state.properties["note"] = "größer"
state.properties["flag"] = True
state.properties["epoch"] = 4
state.properties["big"] = 2**40
state.properties["single"] = np.float32(1.5)
CheckpointState.save_checkpoint(state, "again")
loaded = CheckpointState.load_checkpoint("again")
results = {
    "empty": empty,
    "count": len(loaded.properties),
    "contains": ["epoch" in loaded.properties, "nothing" in loaded.properties],
    "all": dict(sorted(dict(iter(loaded.properties)).items())),
    "kinds": [type(loaded.properties[name]).__name__ for name in ("epoch", "loss", "note")],
    "numpy": loaded.properties["single"],
    "shown": error_of(lambda: repr(loaded.properties)),
    "missing": error_of(lambda: state.properties["nothing"], "Property nothing not found."),
    "refused": [
        error_of(lambda value=value: state.properties.__setitem__("x", value))
        for value in (None, [1], {"a": 1})
    ],
}
