"""Artifacts to train; without onnxruntime-training there is nothing to test here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import session_models
from tests.api import mlp
from tests.engines import available_engines
from tests.session_models import Artifacts

collect_ignore_glob = [] if "training" in available_engines() else ["test_*.py"]


@pytest.fixture(scope="module")
def adamw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated artifacts, whose optimizer the C class knows."""
    return mlp.write_artifacts(tmp_path_factory.mktemp("adamw"), "AdamW")


@pytest.fixture
def files(tmp_path: Path) -> Artifacts:
    return session_models.write(tmp_path)
