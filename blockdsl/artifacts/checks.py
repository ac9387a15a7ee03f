"""What a runtime would refuse in artifacts, said while they are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onnx import ModelProto

from blockdsl.errors import ArtifactError
from blockdsl.graph.layout import ACCUMULATED, BUFFER, NEW, RESET
from blockdsl.graph.walk import opset_of

OLDEST_OPSET = 7
"""The first opset whose operators broadcast as ours do."""

Meaning = tuple[str, str]
"""A name, and what it stands for."""


def check_runnable(model: ModelProto) -> None:
    """Check that runtimes will take what is made of a model.

    Raises:
        ArtifactError: Its opset is too old.
    """
    opset = opset_of(model)
    if opset is not None and opset < OLDEST_OPSET:
        raise ArtifactError(
            f"The model is of opset {opset}, and training needs {OLDEST_OPSET} or newer: convert "
            f"it with onnx.version_converter.convert_version(model, 17)."
        )


def check_training_names(known: Iterable[str], trained: Sequence[str]) -> None:
    """Check that the names which the training model gets are free.

    Raises:
        ArtifactError: The forward model has a tensor of such a name.
    """
    tensors = set(known)
    for name, meaning in _training_names(trained):
        if name in tensors:
            raise _clash(name, "a tensor of the forward model", meaning)


def check_optimizer_names(trained: Sequence[str], slots: Sequence[str]) -> None:
    """Check that no two inputs or outputs of the optimizer model have one name.

    Raises:
        ArtifactError: A parameter is named like the gradient of another one, say.
    """
    found: dict[str, str] = {}
    for name, meaning in _optimizer_names(trained, slots):
        if name in found:
            raise _clash(name, found[name], meaning)
        found[name] = meaning


def _training_names(trained: Sequence[str]) -> Iterator[Meaning]:
    yield RESET, "the input that resets gradients"
    for name in trained:
        yield f"{name}{BUFFER}", f"the input that the gradient of {name!r} is added to"
        yield f"{name}_grad{ACCUMULATED}", f"the output that says so of {name!r}"


def _optimizer_names(trained: Sequence[str], slots: Sequence[str]) -> Iterator[Meaning]:
    yield "learning_rate", "the learning rate"
    yield "step", "the number of the step"
    for name in trained:
        yield name, f"the parameter {name!r}"
        yield f"{name}_grad", f"the gradient of {name!r}"
        yield f"{name}_grad{NEW}", f"the clipped gradient of {name!r}"
        yield f"{name}{NEW}", f"the new value of {name!r}"
        for slot in slots:
            yield f"{name}.{slot}", f"the {slot} of {name!r}"
            yield f"{name}.{slot}{NEW}", f"the new {slot} of {name!r}"


def _clash(name: str, one: str, other: str) -> ArtifactError:
    return ArtifactError(
        f"The name {name!r} would stand for two tensors of the artifacts: {one}, and {other}. "
        f"Rename one of the forward model's parameters or tensors, or freeze the parameter."
    )
