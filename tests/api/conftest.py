"""The artifacts that the tests of the API train, and a run over them on each engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from blockdsl.api import CheckpointState, Module, Optimizer
from tests.api import mlp
from tests.api.runs import Trained


@pytest.fixture(scope="session")
def adamw_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the artifacts of the classifier, to be trained by AdamW."""
    return mlp.write_artifacts(tmp_path_factory.mktemp("adamw"), "AdamW")


@pytest.fixture(scope="session")
def sgd_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, to be trained by SGD."""
    return mlp.write_artifacts(tmp_path_factory.mktemp("sgd"), "SGD")


@pytest.fixture(params=["adamw", "sgd"])
def files(request: pytest.FixtureRequest) -> Path:
    """The artifacts of either optimizer."""
    return request.getfixturevalue(f"{request.param}_files")


@pytest.fixture
def open_run(files: Path, engine: str) -> Callable[..., Trained]:
    """Opens a checkpoint, a module over it and its optimizer."""

    def open_it(checkpoint: str | Path = "checkpoint") -> Trained:
        state = CheckpointState.load_checkpoint(files / checkpoint, engine=engine)
        module = Module(files / "training_model.onnx", state, files / "eval_model.onnx")
        return state, module, Optimizer(files / "optimizer_model.onnx", module)

    return open_it


@pytest.fixture
def run(open_run: Callable[..., Trained]) -> Trained:
    return open_run()
