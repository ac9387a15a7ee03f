"""The list of skips is honest: every entry names a test, and gives a reason."""

import pytest

from tests import skips
from tests.skips import Skip


def test_every_skip_names_a_test(pytestconfig):
    assert not pytestconfig.stash[skips.STALE]


def test_brackets_and_wildcards():
    skip = Skip("test_a.py::*[Relu-2x3*", "a kink")
    assert skip.matches("test_a.py::test_gradient[Relu-2x3-opset9]")
    assert not skip.matches("test_a.py::test_gradient[Abs-2x3]")


def test_a_reason_is_needed():
    with pytest.raises(ValueError, match="no reason"):
        Skip("test_a.py::*", "")
