"""Where both packages are installed, their blocks and artifacts are put beside each other, live."""

from __future__ import annotations

from importlib.util import find_spec

from tests.engines import available_engines

# `onnxruntime.training` imports PyTorch: CI's environment `upstream` has both.
if "training" not in available_engines() or find_spec("torch") is None:
    collect_ignore = ["test_interop.py", "test_live.py", "theirs.py"]
