"""The installed ONNX Runtime: which wheel it is and where it can run.

onnxruntime is imported here and in the engines only, and only when something is to be run.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from blockdsl.errors import EngineError

# Every one of these wheels installs the same Python package, `onnxruntime`.
WHEELS = (
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-training",
    "onnxruntime-training-cpu",
    "onnxruntime-directml",
    "onnxruntime-openvino",
    "onnxruntime-rocm",
    "onnxruntime-silicon",
)

# Device kind -> execution provider, and the extra of blockdsl that installs a wheel with it.
PROVIDERS = {
    "cpu": ("CPUExecutionProvider", "ort"),
    "cuda": ("CUDAExecutionProvider", "cuda"),
}

OLDEST = (1, 19)


@dataclass(frozen=True)
class Device:
    """Where a session runs and where its tensors live.

    Example:
        >>> Device.parse("cuda:1")
        Device(kind='cuda', index=1)
        >>> print(Device.parse("cpu"))
        cpu
    """

    kind: str = "cpu"
    index: int = 0

    @classmethod
    def parse(cls, text: str | Device) -> Device:
        """Read `cpu`, `cpu:0`, `cuda` or `cuda:<index>`.

        Raises:
            EngineError: The text names no device that an engine knows.
        """
        if isinstance(text, Device):
            return text
        match = re.fullmatch(r"([a-z]+)(?::(\d+))?", str(text).strip().lower())
        if match is None or match[1] not in PROVIDERS:
            raise EngineError(
                f"Unsupported device type: {text!r}. A device is 'cpu', 'cuda' or 'cuda:<index>'."
            )
        device = cls(match[1], int(match[2] or 0))
        if device.is_host and device.index:
            raise EngineError(f"Unsupported device type: {text!r}. The CPU is 'cpu' or 'cpu:0'.")
        return device

    @property
    def is_host(self) -> bool:
        """Whether NumPy sees this device's memory."""
        return self.kind == "cpu"

    @property
    def provider(self) -> str:
        """The execution provider's name in ONNX Runtime."""
        return PROVIDERS[self.kind][0]

    def providers(self) -> list[str | tuple[str, dict[str, Any]]]:
        """What `InferenceSession(providers=...)` takes; the CPU stands in for missing kernels.

        Raises:
            EngineError: The installed wheel has no such provider.
        """
        require_provider(self)
        if self.is_host:
            return [self.provider]
        return [(self.provider, {"device_id": self.index}), "CPUExecutionProvider"]

    def __str__(self) -> str:
        return self.kind if self.index == 0 else f"{self.kind}:{self.index}"


CPU = Device()


def installed_wheels() -> dict[str, str]:
    """The installed wheels that provide the Python package `onnxruntime`, with their versions."""
    found = {}
    for name in WHEELS:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


@cache
def load_runtime() -> ModuleType:
    """Import onnxruntime.

    Raises:
        EngineError: It is not installed, two wheels of it are, or it is too old.
    """
    wheels = installed_wheels()
    if len(wheels) > 1:
        names = " ".join(wheels)
        raise EngineError(
            f"Several ONNX Runtime wheels are installed ({listed(wheels)}). They write to the "
            f"same folder, so none of them is whole. Remove all, then install one: "
            f"`pip uninstall -y {names}`, then `pip install 'blockdsl[cpu]'`."
        )
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError as error:
        reason = "is not installed" if not wheels else f"cannot be imported ({error})"
        raise EngineError(
            f"ONNX Runtime {reason}. Graphs and artifacts are built without it; to run them, "
            "install one of `pip install 'blockdsl[ort]'` (the best for this machine), "
            "'blockdsl[cpu]', 'blockdsl[cuda]' or 'blockdsl[training]'."
        ) from error
    if version_of(runtime) < OLDEST:
        raise EngineError(
            f"ONNX Runtime {runtime.__version__} is too old: blockdsl needs 1.20 or later, or "
            "onnxruntime-training 1.19.2."
        )
    return runtime


def version_of(runtime: ModuleType) -> tuple[int, int]:
    """The major and minor version of an onnxruntime module."""
    numbers = re.findall(r"\d+", runtime.__version__)
    return int(numbers[0]), int(numbers[1])


def has_training_api() -> bool:
    """Whether the installed wheel has the C classes of the on-device training API."""
    load_runtime()
    native = importlib.import_module("onnxruntime.capi._pybind_state")
    return hasattr(native, "Module")


def require_provider(device: Device) -> None:
    """Check that the installed wheel can run on a device.

    Raises:
        EngineError: It cannot; the message says what is installed and what to install.
    """
    available = load_runtime().get_available_providers()
    if device.provider in available:
        return
    wheels = installed_wheels()
    raise EngineError(
        f"The device '{device}' needs ONNX Runtime's {device.provider}, which the installed "
        f"{listed(wheels) or 'onnxruntime'} does not have (it has {', '.join(available)}). "
        f"Remove it (`pip uninstall -y {' '.join(wheels) or 'onnxruntime'}`) and install "
        f"`pip install 'blockdsl[{PROVIDERS[device.kind][1]}]'`, or use device='cpu'."
    )


def listed(wheels: Mapping[str, str]) -> str:
    """Wheels with their versions, in words."""
    return ", ".join(f"{name} {version}" for name, version in wheels.items())
