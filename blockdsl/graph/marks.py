"""Marks of tensors: a block made one as a parameter or as a buffer.

They are metadata of the tensor, so that a model file says what its blocks meant.
"""

from __future__ import annotations

from typing import Literal

from onnx import TensorProto

Mark = Literal["parameter", "buffer"]
PARAMETER: Mark = "parameter"
BUFFER: Mark = "buffer"

_KEY = "blockdsl"


def mark(tensor: TensorProto, kind: Mark) -> None:
    """Mark a tensor, in place.

    Example:
        >>> tensor = TensorProto()
        >>> mark(tensor, BUFFER)
        >>> mark_of(tensor)
        'buffer'
    """
    for entry in [entry for entry in tensor.metadata_props if entry.key == _KEY]:
        tensor.metadata_props.remove(entry)
    tensor.metadata_props.add(key=_KEY, value=kind)


def mark_of(tensor: TensorProto) -> str | None:
    """Return the mark of a tensor, None if it has none."""
    return next((entry.value for entry in tensor.metadata_props if entry.key == _KEY), None)
