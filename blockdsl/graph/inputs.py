"""Graph inputs of the model under construction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from blockdsl.errors import UnknownNameError, near
from blockdsl.graph.context import current
from blockdsl.graph.tensor import Dim, elem_type_of
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
        GraphError: The model has a tensor of that name.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     print(blockdsl.input("x", "float16", ("batch", 3)).type)
        float16[batch, 3]
    """
    elem_type = dtype if isinstance(dtype, int) else elem_type_of(dtype)
    return current().add_input(name, elem_type, tuple(shape))


def input_like(like: str, name: str, dtype: Any = None) -> Value:
    """The input of that name, added with the type and shape of another tensor if there is none.

    Args:
        like: The tensor to take the type and shape of.
        name: The name of the input.
        dtype: Another element type.

    Returns:
        The input.

    Raises:
        UnknownNameError: There is no tensor `like`.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     x = blockdsl.input("x", shape=("batch", 3))
        ...     print(blockdsl.input_like(x, "target").type)
        float32[batch, 3]
    """
    graph = current()
    graph.sync()
    if name in graph:
        return graph.value(name)
    if like not in graph:
        raise UnknownNameError(
            f"Could not find input or output with name {like!s}. "
            f"{near(like, list(graph.known_names()))}"
        )
    found = graph.type_of(like)
    elem_type = found.elem_type if dtype is None else elem_type_of(dtype)
    return graph.add_input(name, elem_type, found.shape)
