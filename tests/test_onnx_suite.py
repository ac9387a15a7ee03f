"""ONNX's own suite over `blockdsl.backend`: what ONNX Runtime can run, blockdsl runs.

The classes `OnnxBackend...Test` come from the suite, with the models of its "real" category, which
are part of the onnx package: nothing is downloaded. What they skip is in onnx_suite.toml.
"""

from functools import lru_cache

import pytest

import blockdsl.backend
from tests.onnx_suite import DEVICES, PlainBackend, StrictBackend, Suite, all_cases, excluded

SUITE = Suite(blockdsl.backend, __name__)
globals().update(SUITE.classes())


@pytest.fixture(scope="module", autouse=True)
def models_folder(tmp_path_factory):
    """Where the suite writes the inputs of the "real" models: not into the user's home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNX_MODELS", str(tmp_path_factory.mktemp("models")))
        yield


def failure(suite, case, device):
    """How a case fails: the runtime's own exception, or how the results differ; "": it passes."""
    try:
        suite.run(case, device)
    except BaseException as error:  # SkipTest is none of Exception's
        cause = error.__cause__ if isinstance(error, blockdsl.BlockError) else error
        text = str(cause)
        if isinstance(cause, AssertionError):  # random numbers differ from run to run
            text = text.strip().splitlines()[0]
        return f"{type(cause).__name__}: {text}"
    return ""


@lru_cache(maxsize=1)
def both():
    return Suite(StrictBackend(blockdsl.backend)), Suite(PlainBackend)


@pytest.mark.parametrize("entry", excluded(), ids=lambda entry: entry.reason)
def test_onnxruntime_fails_where_a_case_is_left_out(entry):
    cases = excluded()[entry]
    assert cases, "the entry names no case that is not named before"
    ours, plain = both()
    wrong = {}
    for case in cases:
        for device in filter(blockdsl.backend.supports_device, DEVICES):
            here, there = failure(ours, case, device), failure(plain, case, device)
            if here != there or not (here or entry.rounding):
                wrong[case.devices[device]] = (here, there)
    assert wrong == {}


def test_the_suite_is_complete():
    names = {name for case in all_cases() for name in case.devices.values()}
    made = {name for group in SUITE.classes().values() for name in dir(group)}
    assert names == {name for name in made if name.startswith("test_")}
    assert len(names) > 4000


def test_only_what_is_left_out_is_incompatible():
    # The suite skips what a backend calls incompatible; no case is to vanish that way.
    named = {case for cases in excluded().values() for case in cases}
    files = [c for c in all_cases() if c.kind not in ("NodeModel", "RealModel")]
    wrong = [
        case.name
        for case in files
        if case not in named and not blockdsl.backend.is_compatible(case.model)
    ]
    assert len(files) > 100
    assert wrong == []
