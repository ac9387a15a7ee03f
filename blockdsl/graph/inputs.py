"""Graph inputs of the model under construction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from blockdsl.errors import GraphError, UnknownNameError, near
from blockdsl.graph.context import current
from blockdsl.graph.tensor import Dim, Shape, TensorType, elem_type_of
from blockdsl.graph.value import Value


def input(name: str, dtype: Any = np.float32, shape: Sequence[Dim] = ()) -> Value:
    """Add an input to the model under construction.

    Args:
        name: Its name.
        dtype: A NumPy type or an `onnx.TensorProto.DataType`.
        shape: Its dimensions: integers, names of symbolic sizes, or None.

    Returns:
        The input.

    Raises:
        GraphError: The model has a tensor of that name, or the shape is none.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(blockdsl.input("x", "float16", ("batch", 3)).type)
        float16[batch, 3]
    """
    elem_type = dtype if isinstance(dtype, int) else elem_type_of(dtype)
    return current().scopes[0].add_input(name, elem_type, _shape(name, shape))


def _shape(name: str, given: Any) -> Shape:
    if isinstance(given, Sequence) and not isinstance(given, str):
        dims = tuple(int(d) if isinstance(d, np.integer) else d for d in given)
        if all(d is None or isinstance(d, str) or (isinstance(d, int) and d >= 0) for d in dims):
            return dims
    raise GraphError(
        f"The shape of the input {name!r} is {given!r}: a shape is a tuple of sizes, each an "
        f"integer, a name for one that is not known yet, or None."
    )


def input_like(like: str, name: str, dtype: Any = None) -> Value:
    """Add an input with the type and shape of another tensor, or return the one added before.

    Blocks of one model share the inputs that they add. A tensor that the model had when it was
    opened is not taken: name it where it is wanted.

    Args:
        like: The tensor to take the type and shape of.
        name: The name of the input.
        dtype: Another element type.

    Returns:
        The input.

    Raises:
        UnknownNameError: There is no tensor `like`.
        GraphError: The model had a tensor `name` when it was opened, or a block has added one of
            another type or shape.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     x = blockdsl.input("x", shape=("batch", 3))
        ...     print(blockdsl.input_like(x, "target").type)
        float32[batch, 3]
    """
    graph = current()
    graph.sync()
    if like not in graph:
        if graph.is_inside(like):
            raise graph.unknown(like, f"The input {name!r}")
        raise UnknownNameError(
            f"Could not find input or output with name {like!s}. "
            f"{near(like, list(graph.known_names()))}"
        )
    found = graph.type_of(like)
    wanted = found if dtype is None else TensorType(elem_type_of(dtype), found.shape)
    if is_own(name):
        raise GraphError(
            f"The model has {own_tensor(name)}, and an input like {str(like)!r} was to be added "
            f"under that name. Give the input another name; or, if that tensor is meant, write its "
            f"name where the input was to go."
        )
    return input_of(name, wanted, f"an input like {like!s} has", "Give the input another name.")


def is_own(name: str) -> bool:
    """Whether the model had a tensor of that name when it was opened."""
    return name in current().scopes[0].opened_with


def own_tensor(name: str) -> str:
    """Describe a tensor that the model had when it was opened, for error messages."""
    graph = current()
    kind = "an input" if name in graph.user_inputs() else "a tensor"
    kind = "an output" if any(o.name == name for o in graph.proto.graph.output) else kind
    return f"{kind} {str(name)!r} of its own, {graph.type_of(name)}"


def input_of(
    name: str, wanted: TensorType, need: str, advice: str, broadcast: bool = True
) -> Value:
    """The tensor of that name, an input added with this type if there is none.

    Args:
        name: The name of the tensor.
        wanted: The type it has to have.
        need: Who wants that type, for the error message.
        advice: What to do about a tensor of another type, for the same.
        broadcast: Whether a tensor that is computed, or constant, may have a shape that broadcasts
            to the wanted one. (An input may not: two inputs that were meant would become one.)

    Returns:
        The tensor.

    Raises:
        GraphError: There is a tensor of that name, of another type or shape.
    """
    graph = current()
    if name not in graph:
        return graph.scopes[0].add_input(name, wanted.elem_type, wanted.shape)
    found, given = graph.type_of(name), name in graph.user_inputs()
    agrees = _agrees(found.shape, wanted.shape, broadcast and not given)
    if found.elem_type != wanted.elem_type or not agrees:
        what = "an input" if given else "a tensor"
        raise GraphError(
            f"The model has {what} {name!s} of the type {found} already, and {need} the type "
            f"{wanted}. {advice}"
        )
    return graph.value(name)


def _agrees(found: Shape | None, wanted: Shape | None, broadcast: bool) -> bool:
    """Whether a shape can be the wanted one, as far as their dimensions are numbers."""
    if found is None or wanted is None:
        return True
    if broadcast:
        wanted = wanted[len(wanted) - len(found) :] if len(found) <= len(wanted) else wanted
    return len(found) == len(wanted) and all(
        a == b or not (isinstance(a, int) and isinstance(b, int)) or (broadcast and a == 1)
        for a, b in zip(found, wanted, strict=True)
    )
