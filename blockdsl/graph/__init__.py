"""The model under construction. It knows no block: blocks, gradients and losses build on it."""

from blockdsl.graph.context import (
    ModelHandle,
    activate,
    base,
    current,
    custom_op_library,
    empty_base,
)
from blockdsl.graph.inputs import input, input_like
from blockdsl.graph.model import Graph
from blockdsl.graph.op import op
from blockdsl.graph.tensor import TensorType
from blockdsl.graph.value import Value

__all__ = [
    "Graph",
    "ModelHandle",
    "TensorType",
    "Value",
    "activate",
    "base",
    "current",
    "custom_op_library",
    "empty_base",
    "input",
    "input_like",
    "op",
]
