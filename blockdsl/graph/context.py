"""The current model: opened with `base` or `empty_base`, one per thread and task."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import onnx
from onnx import ModelProto, helper

from blockdsl.errors import GraphError, NoBaseError
from blockdsl.graph import onnxblock, onnxscript
from blockdsl.graph.model import Graph
from blockdsl.graph.schema import MICROSOFT

_current: ContextVar[Graph | None] = ContextVar("blockdsl_graph", default=None)
_library: ContextVar[Path | None] = ContextVar("blockdsl_custom_op_library", default=None)
_adopted: WeakKeyDictionary[Any, Graph] = WeakKeyDictionary()
"""The models that onnxruntime.training.onnxblock has open and blocks of ours build on."""

_IR_OF_OPSET = ((24, 12), (23, 11), (21, 10), (20, 9), (15, 8), (13, 7), (12, 7), (11, 6), (0, 4))
"""The IR version that came with an opset: what every runtime that knows the opset can load."""


class ModelHandle:
    """What `base` and `empty_base` hand out: the model that the blocks build on."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @property
    def model(self) -> ModelProto:
        """The model as it stands now."""
        return self._graph.proto

    @property
    def path(self) -> str:
        """The file that the model was read from.

        Raises:
            GraphError: The model did not come from a file.
        """
        if self._graph.path is None:
            raise GraphError("The model did not come from a file: base(model, path) was not used.")
        return os.fspath(self._graph.path)

    @property
    def has_path(self) -> bool:
        """Whether the model was read from a file."""
        return self._graph.path is not None


def current() -> Graph:
    """The model that is open here, be it by onnxruntime.training.onnxblock.

    Raises:
        NoBaseError: None is.
    """
    graph = opened()
    if graph is None:
        raise NoBaseError(
            "No model is open: build blocks inside `with blockdsl.base(model):` or "
            "`with blockdsl.empty_base():`."
        )
    return graph


def opened() -> Graph | None:
    """Return the model that is open here, None if none is."""
    return _current.get() or _of_onnxblock()


def _of_onnxblock() -> Graph | None:
    """The model that onnxruntime.training.onnxblock has open."""
    accessor = onnxblock.accessor()
    if accessor is None:
        return None
    if accessor not in _adopted:
        graph = _adopted[accessor] = Graph(accessor.model)
        if not graph.proto.graph.node:
            # Its empty_base stamps the newest version that onnx knows, which no runtime may read.
            newest = ir_version_of(graph.opset())
            graph.proto.ir_version = min(graph.proto.ir_version, newest)
    return _adopted[accessor]


@contextmanager
def activate(graph: Graph) -> Iterator[Graph]:
    """Make a graph the current one for a while, whatever was current before."""
    token = _current.set(graph)
    try:
        with onnxscript.lend():
            yield graph
    finally:
        _current.reset(token)


@contextmanager
def base(
    model: ModelProto | None, model_path: str | os.PathLike[str] | None = None
) -> Iterator[ModelHandle]:
    """Open a copy of a model for blocks to build on.

    Args:
        model: The model; it is never changed.
        model_path: The file it was read from, when its weights lie in files beside that one.

    Yields:
        A handle whose `model` is the live model.

    Raises:
        GraphError: `model` is None, or another model is open already.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base() as handle:
        ...     x = blockdsl.input("x", shape=("batch", 3))
        ...     y = x.relu()
        >>> with blockdsl.base(handle.model) as extended:
        ...     _ = blockdsl.op.Neg(y)
        >>> len(handle.model.graph.node), len(extended.model.graph.node)
        (1, 2)
    """
    if model is None:
        raise GraphError(
            "The base model is None. Use blockdsl.empty_base() to build a model from scratch."
        )
    if not isinstance(model, ModelProto):
        raise GraphError(
            f"The base model is an onnx.ModelProto, not a {type(model).__name__}: read one from a "
            f"file with onnx.load(path)."
        )
    with adopt(copy.deepcopy(model), model_path) as handle:
        yield handle


@contextmanager
def empty_base(opset_version: int | None = None) -> Iterator[ModelHandle]:
    """Open an empty model for blocks to build.

    Args:
        opset_version: The opset of the model; the default is 17, which every runtime that
            blockdsl supports can load.

    Yields:
        A handle whose `model` is the live model.

    Raises:
        GraphError: There is no such opset, or another model is open already.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base(opset_version=15) as handle:
        ...     _ = blockdsl.input("x", shape=(2,)).exp()
        >>> [node.op_type for node in handle.model.graph.node]
        ['Exp']
    """
    opset, newest = opset_version or 17, onnx.defs.onnx_opset_version()
    if not (isinstance(opset, int) and 1 <= opset <= newest):
        raise GraphError(
            f"There is no opset {opset!r}: the installed onnx {onnx.__version__} knows 1 to "
            f"{newest}."
        )
    proto = ModelProto(ir_version=ir_version_of(opset), producer_name="blockdsl")
    proto.graph.name = "graph"
    proto.opset_import.extend([helper.make_opsetid(MICROSOFT, 1), helper.make_opsetid("", opset)])
    with adopt(proto) as handle:
        yield handle


def ir_version_of(opset: int) -> int:
    """The IR version to stamp on a new model of an opset.

    Example:
        >>> ir_version_of(17)
        8
    """
    return min(next(ir for first, ir in _IR_OF_OPSET if opset >= first), onnx.IR_VERSION)


@contextmanager
def adopt(
    model: ModelProto, model_path: str | os.PathLike[str] | None = None
) -> Iterator[ModelHandle]:
    """As `base`, but blocks build on the model itself: for one that nobody else has."""
    if _current.get() is not None or onnxblock.accessor() is not None:
        raise GraphError(
            "Base onnx model already exists. Cannot create multiple ModelAccessors: close the "
            "open `with blockdsl.base(...)` before opening another."
        )
    graph = Graph(model, model_path)
    graph.opened_with = frozenset(graph.known_names())
    with activate(graph), onnxblock.lend(lambda: current().proto):
        yield ModelHandle(graph)
        graph.declare_types()


@contextmanager
def custom_op_library(custom_op_library_path: str | os.PathLike[str]) -> Iterator[Path]:
    """Name the library of custom operators that the model uses.

    Args:
        custom_op_library_path: Its file.

    Yields:
        The path.

    Raises:
        GraphError: There is no such file, or a library is named already.
    """
    if _library.get() is not None:
        raise GraphError("CustomOp library already set. Cannot set multiple custom op libraries.")
    given = custom_op_library_path
    if not isinstance(given, str | os.PathLike) or not os.path.exists(given):
        raise GraphError(f"Custom op library path {given} does not exist.")
    path = Path(given)
    token = _library.set(path)
    try:
        with onnxblock.lend_library(path):
            yield path
    finally:
        _library.reset(token)
