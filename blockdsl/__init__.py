"""A composable graph-building DSL that turns ONNX models into ones that train."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from blockdsl.blocks.block import Block
from blockdsl.blocks.parameters import buffer, parameter
from blockdsl.errors import BlockError, BlockWarning
from blockdsl.graph import Value, base, custom_op_library, empty_base, input, input_like, op

if TYPE_CHECKING:
    from blockdsl import api, artifacts, blocks, gradient, loss, optim, testing
    from blockdsl.artifacts import inspect, load_checkpoint_to_model, save_checkpoint
    from blockdsl.data import Batches
    from blockdsl.gradient.models import grad
    from blockdsl.gradient.products import hvp, jvp, vjp
    from blockdsl.gradient.values import gradients
    from blockdsl.trainer import Trainer
    from blockdsl.training import ForwardBlock, TrainingBlock

__version__ = "0.1.0"

__all__ = [
    "Batches",
    "Block",
    "BlockError",
    "BlockWarning",
    "ForwardBlock",
    "Trainer",
    "TrainingBlock",
    "Value",
    "api",
    "artifacts",
    "base",
    "blocks",
    "buffer",
    "custom_op_library",
    "empty_base",
    "grad",
    "gradient",
    "gradients",
    "hvp",
    "input",
    "input_like",
    "inspect",
    "jvp",
    "load_checkpoint_to_model",
    "loss",
    "op",
    "optim",
    "parameter",
    "save_checkpoint",
    "testing",
    "vjp",
]

_HOMES = {
    "Batches": "data",
    "ForwardBlock": "training",
    "TrainingBlock": "training",
    "Trainer": "trainer",
    "grad": "gradient.models",
    "gradients": "gradient.values",
    "hvp": "gradient.products",
    "inspect": "artifacts",
    "jvp": "gradient.products",
    "vjp": "gradient.products",
    "load_checkpoint_to_model": "artifacts",
    "save_checkpoint": "artifacts",
}
_PACKAGES = ("api", "artifacts", "blocks", "gradient", "loss", "optim", "testing")


def __getattr__(name: str) -> Any:
    """Load what lies deeper when it is asked for: `import blockdsl` stays as quick as onnx."""
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
