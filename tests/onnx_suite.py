"""ONNX's own suite for backends: its cases, and which of them ONNX Runtime cannot run."""

from __future__ import annotations

import locale
import re
import sys
import unittest
import warnings
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto
from packaging.specifiers import SpecifierSet

from blockdsl.backend.limits import runtime_limits

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = Path(__file__).with_name("onnx_suite.toml")
DEVICES = ("CPU", "CUDA")


@dataclass(frozen=True)
class Exclusion:
    """One entry of the table."""

    cases: tuple[str, ...]
    reason: str
    runtime: str = ""
    newer: bool = False
    rounding: bool = False
    locale: str = ""

    @property
    def applies(self) -> bool:
        """Whether it is meant for this runtime on this machine."""
        here = onnxruntime.__version__ in SpecifierSet(self.runtime)
        return here and not (self.locale and _has_locale(self.locale))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        texts = (re.escape(case).replace(r"\*", ".*").replace(r"\?", ".") for case in self.cases)
        return re.compile("|".join(texts))

    def matches(self, case: Case) -> bool:
        named = self._pattern.fullmatch(case.name) is not None
        return named and (case.is_newer or not self.newer)


@dataclass(frozen=True, eq=False)
class Case:
    """One case of the suite: a function of the device that runs a model and compares."""

    name: str
    kind: str
    devices: dict[str, str]
    model: ModelProto | Path | None

    @property
    def is_newer(self) -> bool:
        """Whether the runtime does not know its opset."""
        if not isinstance(self.model, ModelProto):
            return False
        opsets = [o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx")]
        return max(opsets, default=0) > runtime_limits().opset


class Suite:
    """The suite over a backend.

    Args:
        backend: The backend.
        module: The module that the suite's test classes are to be found in.
    """

    def __init__(self, backend, module=None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the making of the cases divides by zero, on purpose
            from onnx.backend.test import BackendTest

            self._runner = BackendTest(backend, module)

    def run(self, case: Case, device: str) -> None:
        """Run one case; it raises what the backend raises, or says what is unlike."""
        self._runner._test_items[case.kind][case.devices[device]].func(None)

    def classes(self) -> dict[str, type[unittest.TestCase]]:
        """The suite's classes of tests, which skip what is excluded."""
        classes = self._runner.test_cases
        reasons = {
            name: exclusion.reason
            for exclusion, cases in excluded().items()
            for case in cases
            for name in case.devices.values()
        }
        for group in classes.values():
            for name in set(dir(group)) & set(reasons):
                setattr(group, name, unittest.skip(reasons[name])(getattr(group, name)))
        return classes


@lru_cache(maxsize=1)
def all_cases() -> tuple[Case, ...]:
    """Every case, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        found = {
            kind: load_model_tests(kind=directory)
            for kind, directory in (
                ("NodeModel", "node"),
                ("RealModel", "real"),
                ("SimpleModel", "simple"),
                ("PyTorchConvertedModel", "pytorch-converted"),
                ("PyTorchOperatorModel", "pytorch-operator"),
            )
        }
    cases = []
    for kind, tests in found.items():
        for test in tests:
            devices = {device: f"{test.name}_{device.lower()}" for device in DEVICES}
            file = None if test.model_dir is None else Path(test.model_dir, "model.onnx")
            name = test.name.removeprefix("test_")
            cases.append(Case(name, kind, devices, file if test.model is None else test.model))
    return tuple(sorted(cases, key=lambda case: case.name))


@lru_cache(maxsize=1)
def excluded() -> dict[Exclusion, list[Case]]:
    """What is left out here, by the entry that says so."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    entries = [Exclusion(cases=tuple(row.pop("cases")), **row) for row in table["exclude"]]
    found: dict[Exclusion, list[Case]] = {entry: [] for entry in entries if entry.applies}
    for case in all_cases():
        entry = next((entry for entry in found if entry.matches(case)), None)
        if entry is not None:
            found[entry].append(case)
    return found


class PlainBackend:
    """A backend that is a plain InferenceSession and nothing else.

    The IR version is lowered to what the runtime reads, for the suite stamps the newest; NumPy's
    scalars become arrays.
    """

    def __init__(self, session):
        self._session = session

    @classmethod
    def supports_device(cls, device):
        return f"{device}ExecutionProvider" in onnxruntime.get_available_providers()

    @classmethod
    def prepare(cls, model, device, **kwargs):
        lowered = onnx.ModelProto()
        lowered.CopyFrom(model)
        lowered.ir_version = min(model.ir_version, runtime_limits().ir_version)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        providers = dict.fromkeys([f"{device}ExecutionProvider", "CPUExecutionProvider"])
        return cls(
            onnxruntime.InferenceSession(lowered.SerializeToString(), options, list(providers))
        )

    def run(self, inputs):
        names = [value.name for value in self._session.get_inputs()]
        arrays = [np.asarray(x) if isinstance(x, np.generic) else x for x in inputs]
        return self._session.run(None, dict(zip(names, arrays, strict=True)))


class StrictBackend:
    """`blockdsl.backend` without `is_compatible`, on whose word the suite would skip a case."""

    def __init__(self, backend):
        self.prepare = backend.prepare
        self.supports_device = backend.supports_device


@lru_cache(maxsize=1)
def _has_locale(name: str) -> bool:
    old = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, name)
    except locale.Error:
        return False
    locale.setlocale(locale.LC_CTYPE, old)
    return True
