"""`Block`: a piece of a model as a Python class."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeGuard

import onnx

from blockdsl.blocks.scopes import scope_of
from blockdsl.errors import GraphError, UnknownAttributeError, near
from blockdsl.graph import onnxblock
from blockdsl.graph.context import current, opened
from blockdsl.graph.model import Graph
from blockdsl.graph.structure import leaves_of, mapped
from blockdsl.graph.value import Value


class Block(ABC):
    """The base class of everything that can be stacked on a model.

    A subclass's `build` takes tensors, appends to the model under construction and returns
    tensors. Calling the block runs `build` and checks what it appended. Blocks hold other blocks
    as attributes and call them. `super().__init__()` need not be called.

    Args:
        temp_file_name: A relative path. onnxblock writes a large model there to check it; here it
            does nothing.

    Raises:
        GraphError: The path is absolute.

    Example:
        >>> import blockdsl
        >>> class Square(blockdsl.Block):
        ...     def build(self, x):
        ...         return x * x
        >>> with blockdsl.empty_base() as handle:
        ...     y = Square()(blockdsl.input("x", shape=(2,)))
        >>> y
        'Square/Mul'
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make a block, one of onnxblock's too if the user imported that."""
        theirs = onnxblock.block_class()
        if theirs is not None:
            theirs.register(Block)  # type: ignore[type-abstract]
        block, graph = super().__new__(cls), opened()
        if graph is not None:
            graph.names.note(block)
        return block

    def __init__(self, temp_file_name: str = "temp.onnx") -> None:
        if os.path.isabs(temp_file_name):
            raise GraphError(
                f"Please pass in a relative path for the temp_file_name, not {temp_file_name!r}. "
                f"Nothing is written to it: it can be left out."
            )

    @property
    def base(self) -> onnx.ModelProto:
        """The model under construction.

        Raises:
            NoBaseError: No model is open.
        """
        return current().proto

    def __getattr__(self, name: str) -> Value:
        """Return a parameter or buffer of this block in the open model, by its name.

        It exists once the block has been called there: `self.head(x) @ self.embedding.weight`.
        An attribute of that name, such as the setting `Linear.bias`, hides it.

        Raises:
            UnknownAttributeError: The block has no such attribute and no such parameter.
        """
        graph = None if name.startswith("__") else opened()
        path = None if graph is None else graph.names.path_of(self)
        if graph is None or f"{path}.{name}" not in graph.owned:
            raise UnknownAttributeError(_no_attribute(self, name, graph, path))
        return graph.value(graph.owned[f"{path}.{name}"])

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Append this block to the model under construction.

        Args:
            *args: Tensors (`Value`, or names).
            **kwargs: More of them.

        Returns:
            The tensors that the block computes.
        """

    def infer_shapes_on_base(self) -> onnx.ModelProto:
        """A copy of the model under construction, with all that is known of types and shapes.

        Returns:
            The copy, with a value_info for every tensor that is neither input nor output.

        Raises:
            NoBaseError: No model is open.
        """
        return current().with_types()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `build` in the current model and check what it appended.

        Returns:
            What `build` returned, names of tensors as `Value`.

        Raises:
            NoBaseError: No model is open.
            GraphError: What was appended is not valid.
        """
        graph = current()
        graph.sync()
        with scope(self):
            built = self.build(
                *(_as_value(graph, a) for a in args),
                **{k: _as_value(graph, a) for k, a in kwargs.items()},
            )
            graph.sync()
        return mapped(partial(_as_value, graph), built)


@contextmanager
def scope(block: Block) -> Iterator[str]:
    """Name after a block, and let it own, all that is added inside.

    Calling a block opens it around `build`; another method that adds to the model opens it itself.

    Args:
        block: The block.

    Yields:
        The path that names begin with: the attributes by which blocks hold this one.
    """
    names = current().names
    with names.enter(scope_of(names, block, block_classes()), block) as path:
        yield path


def block_classes() -> tuple[type, ...]:
    """Return the classes of blocks: ours, and onnxblock's if the user imported that."""
    theirs = onnxblock.block_class()
    return (Block,) if theirs is None else (Block, theirs)


def is_block(given: object) -> TypeGuard[Block]:
    """Whether this is a block: of ours, or of onnxblock's if the user imported that."""
    return isinstance(given, block_classes())


class ModelBlock(Block):
    """A block whose outputs become the outputs of the model.

    `to_model_proto` hands out that model, checked.
    """

    _graph: Graph | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `build` and make what it returns the outputs of the model."""
        built = super().__call__(*args, **kwargs)
        graph = current()
        graph.set_outputs(output_names(built))
        self._graph = graph.fork()
        return built

    def to_model_proto(self) -> onnx.ModelProto:
        """The model as it was when the block was built.

        Returns:
            The model, after a full check.

        Raises:
            GraphError: The block has not been built, or the model is not valid.
        """
        if self._graph is None:
            raise GraphError(
                "Please build the forward models first before trying to retrieve it: call the "
                "block inside `with blockdsl.base(model):`."
            )
        self._graph.check()
        return self._graph.proto


def as_names(built: Any) -> list[str]:
    """What a `build` returned as a list of names.

    Raises:
        GraphError: It is neither the name of a tensor nor a structure of several of them.
    """
    names = list(leaves_of(built))
    if not names or not all(isinstance(n, str) for n in names):
        raise GraphError(
            f"build() returned {built!r}: return the tensor that the model is to put out, or a "
            f"tuple, list or dictionary of tensors."
        )
    return [str(name) for name in names]


def output_names(built: Any) -> list[str]:
    """Return what a `build` returned as the names of the model's outputs.

    Raises:
        GraphError: It is not made of tensors, or has one of them twice.
    """
    names = as_names(built)
    for i, name in enumerate(names):
        if name in names[:i]:
            raise GraphError(
                f"build() returned {name!r} twice, and the outputs of a model have different "
                f"names: return it once, or the second time as blockdsl.op.Identity({name!r})."
            )
    return names


def _no_attribute(block: Block, name: str, graph: Graph | None, path: str | None) -> str:
    """Return the message about an attribute that a block does not have."""
    message = f"{type(block).__name__!r} object has no attribute {name!r}"
    if graph is None or name.startswith("_"):
        return message
    if path is None:
        return f"{message}, and no parameter: it has not been called in the model that is open."
    own = [full.removeprefix(f"{path}.") for full in graph.owned if full.startswith(f"{path}.")]
    return f"{message}, and {path!r} no such parameter so far. {near(name, own)}"


def _as_value(graph: Graph, given: Any) -> Any:
    """The name of a tensor as a value; anything else as it is."""
    if isinstance(given, Value) and given.graph is graph:
        return given
    return graph.value(given) if isinstance(given, str) and given in graph else given
