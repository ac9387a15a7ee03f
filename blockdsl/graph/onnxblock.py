"""onnxruntime.training.onnxblock in the same process: its blocks and ours build on one model.

Whoever opened the model, blocks of either library find it: ours fall back on the model that
onnxblock has open, and onnxblock is lent the one that is open here. Nothing is imported for it
(onnxblock imports PyTorch): what counts is what the user imported. onnxblock keeps its open model
in a global of `onnxruntime.training.onnxblock.model_accessor`, and so knows one model for the whole
process.
"""

from __future__ import annotations

import sys
import threading
from abc import ABCMeta
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onnx import ModelProto

_PACKAGE = "onnxruntime.training.onnxblock"


class Lent:
    """The accessor that onnxblock finds while a model is open here."""

    has_path = False
    """Its blocks check the model in memory. With a path they would move the weights of the live
    model into a temporary file in the working directory."""

    def __init__(self) -> None:
        self.model_of_here: Callable[[], ModelProto] | None = None
        self.loans = 0
        self.lock = threading.Lock()

    @property
    def model(self) -> ModelProto:
        """The model that is open in the thread and task that asks."""
        assert self.model_of_here is not None
        return self.model_of_here()


_lent = Lent()


def block_class() -> ABCMeta | None:
    """The base class of onnxblock's blocks, `None` if the user did not import it."""
    return getattr(sys.modules.get(f"{_PACKAGE}.blocks"), "Block", None)


def accessor() -> Any:
    """The handle of the model that onnxblock has opened, `None` if there is none."""
    found = getattr(_accessors(), "_GLOBAL_ACCESSOR", None)
    return None if found is _lent else found


@contextmanager
def lend(model: Callable[[], ModelProto]) -> Iterator[None]:
    """Let onnxblock's blocks build on the model that is open here.

    Args:
        model: What finds it, in the thread and task of the caller.
    """
    theirs = _accessors()
    if theirs is None:
        yield
        return
    with _lent.lock:
        _lent.model_of_here = model
        _lent.loans += 1
        theirs._GLOBAL_ACCESSOR = _lent
    try:
        yield
    finally:
        with _lent.lock:
            _lent.loans -= 1
            if not _lent.loans:
                theirs._GLOBAL_ACCESSOR = None


@contextmanager
def lend_library(path: Path) -> Iterator[None]:
    """Let onnxblock's training blocks use the library of custom operators that is named here."""
    theirs = _accessors()
    if theirs is None:
        yield
        return
    theirs._GLOBAL_CUSTOM_OP_LIBRARY = path
    try:
        yield
    finally:
        theirs._GLOBAL_CUSTOM_OP_LIBRARY = None


def _accessors() -> Any:
    return sys.modules.get(f"{_PACKAGE}.model_accessor")
