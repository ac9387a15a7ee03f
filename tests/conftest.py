"""What every test has: a random generator of its own, the engines there are, and strict skips."""

from __future__ import annotations

import zlib

import hypothesis
import numpy as np
import pytest

from tests import skips
from tests.engines import available_engines

# Scripts that made the data, with libraries that the tests do without, and programs in the words
# of onnxruntime-training, which tests/upstream/test_side_by_side.py runs.
collect_ignore_glob = ["data/*", "upstream/scripts/*"]

# The same examples on every run; `--hypothesis-profile nightly` looks for new ones.
hypothesis.settings.register_profile(
    "default", max_examples=100, deadline=None, derandomize=True, database=None
)
hypothesis.settings.register_profile(
    "nightly", max_examples=2000, deadline=None, derandomize=False, database=None
)
hypothesis.settings.load_profile("default")


@pytest.fixture
def rng(request):
    """A generator seeded by the test's own name: the same on every run and in every order."""
    name = request.node.nodeid.split("::", 1)[1]
    return np.random.default_rng(zlib.crc32(name.encode()))


@pytest.fixture(params=available_engines())
def engine(request):
    """The name of each engine that the installed runtime has."""
    return request.param


def pytest_configure(config):
    config.addinivalue_line("markers", "kink(reason): the inputs lie where there is no derivative")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    skips.apply(config, items)
