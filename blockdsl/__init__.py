"""A composable graph-building DSL that turns ONNX models into ones that train."""

from blockdsl.errors import BlockError
from blockdsl.graph import Value, base, custom_op_library, empty_base, input, input_like, op

__all__ = ["BlockError", "Value", "base", "custom_op_library", "empty_base", "input", "input_like", "op"]
