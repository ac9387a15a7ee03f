"""What is said about the installed runtime, and about one that is missing or broken."""

from __future__ import annotations

import importlib.metadata
from types import SimpleNamespace

import onnxruntime
import pytest

from blockdsl.backend import providers
from blockdsl.backend.limits import RuntimeLimits, runtime_limits
from blockdsl.backend.providers import Device, load_runtime
from blockdsl.errors import EngineError


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("cpu", Device("cpu", 0)),
        ("cpu:0", Device("cpu", 0)),
        ("CPU", Device("cpu", 0)),
        ("cuda", Device("cuda", 0)),
        ("cuda:1", Device("cuda", 1)),
        (Device("cuda", 2), Device("cuda", 2)),
    ],
)
def test_devices_are_read(text, device):
    assert Device.parse(text) == device
    assert Device.parse(str(device)) == device


@pytest.mark.parametrize("text", ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cpu:1", "cuda 1"])
def test_unknown_devices_are_refused(text):
    with pytest.raises(EngineError, match=r"Unsupported device type: .*'cuda:<index>'|cpu:0"):
        Device.parse(text)


def test_the_cpu_runs_everywhere():
    assert Device.parse("cpu").providers() == ["CPUExecutionProvider"]


def test_a_missing_provider_is_named_with_what_to_install(monkeypatch):
    runtime = SimpleNamespace(get_available_providers=lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(providers, "load_runtime", lambda: runtime)
    with pytest.raises(EngineError) as error:
        Device.parse("cuda:1").providers()
    for part in ("'cuda:1'", "CUDAExecutionProvider", "blockdsl[cuda]", onnxruntime.__version__):
        assert part in str(error.value)


def test_two_wheels_are_an_error(monkeypatch):
    wheels = {"onnxruntime": "1.32.0", "onnxruntime-training-cpu": "1.19.2"}
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: wheels.get(name) or _raise_missing(name)
    )
    with pytest.raises(EngineError) as error:
        load_runtime.__wrapped__()
    for part in ("onnxruntime 1.32.0", "onnxruntime-training-cpu 1.19.2", "pip uninstall -y"):
        assert part in str(error.value)


def test_no_wheel_is_an_error(monkeypatch):
    monkeypatch.setattr(providers, "installed_wheels", dict)

    def fail(name):
        raise ImportError(name)

    monkeypatch.setattr(providers, "importlib", SimpleNamespace(import_module=fail))
    with pytest.raises(EngineError, match=r"ONNX Runtime is not installed.*blockdsl\[ort\]"):
        load_runtime.__wrapped__()


def test_an_old_runtime_is_an_error(monkeypatch):
    old = SimpleNamespace(__version__="1.16.3")
    monkeypatch.setattr(
        providers, "importlib", SimpleNamespace(import_module=lambda _: old, metadata=_nothing())
    )
    with pytest.raises(EngineError, match=r"1\.16\.3 is too old: blockdsl needs 1\.20 or later"):
        load_runtime.__wrapped__()


def test_limits_are_those_of_the_runtime():
    limits = runtime_limits()
    if onnxruntime.__version__.startswith("1.19."):
        assert limits == RuntimeLimits(ir_version=10, opset=21)
    assert limits.ir_version >= 10
    assert limits.opset >= 21


def _nothing():
    return SimpleNamespace(
        version=_raise_missing,
        PackageNotFoundError=importlib.metadata.PackageNotFoundError,
    )


def _raise_missing(name):
    raise importlib.metadata.PackageNotFoundError(name)
