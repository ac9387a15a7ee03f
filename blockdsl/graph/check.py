"""ONNX's checker on a model without its weights.

A check of the whole model costs what its weights weigh; without them it costs what its nodes cost.
"""

from __future__ import annotations

import onnx
from onnx import ModelProto, TensorProto, helper

from blockdsl.errors import GraphError

_SMALL = 1024
"""Bytes up to which an initializer stays: shapes, axes and scalars steer shape inference."""


def is_small(tensor: TensorProto) -> bool:
    """Whether an initializer is small enough to be carried around as a value."""
    if tensor.data_location == TensorProto.EXTERNAL:
        return False
    elements = 1
    for dim in tensor.dims:
        elements *= dim
    return elements * 4 <= _SMALL


def skeleton(model: ModelProto) -> ModelProto:
    """A copy of a model in which large initializers are graph inputs of the same type.

    The time and memory it takes do not depend on the weights.
    """
    bare = ModelProto(ir_version=max(model.ir_version, 4))
    bare.opset_import.extend(model.opset_import)
    bare.functions.extend(model.functions)
    graph, source = bare.graph, model.graph
    graph.name = source.name or "graph"
    graph.node.extend(source.node)
    graph.input.extend(source.input)
    graph.output.extend(source.output)
    graph.value_info.extend(source.value_info)
    graph.sparse_initializer.extend(source.sparse_initializer)
    inputs = {value.name for value in source.input}
    for tensor in source.initializer:
        if is_small(tensor):
            graph.initializer.append(tensor)
        elif tensor.name not in inputs:
            graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return bare


def check_model(model: ModelProto) -> None:
    """The full check: structure, operators, types and shapes of every node.

    Raises:
        GraphError: The model is not valid, with the checker's reason.
    """
    try:
        onnx.checker.check_model(skeleton(model), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise GraphError(f"The model is not valid ONNX: {error}") from error
