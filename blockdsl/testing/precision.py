"""A model in another float type."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    numpy_helper,
)

from blockdsl.graph.fused import STATISTIC
from blockdsl.graph.microsoft import operator
from blockdsl.graph.tensor import FLOATS, np_dtype
from blockdsl.graph.walk import opset_of


def in_precision(model: ModelProto, elem_type: int) -> ModelProto:
    """A copy of a model in which every float tensor has one float type.

    What a schema demands to be float32 (the scales of `Resize`, the statistics that
    `LayerNormalization` gives) stays as it is.

    Args:
        model: The model.
        elem_type: The `onnx.TensorProto.DataType` to give to floats.

    Example:
        >>> import blockdsl
        >>> from onnx import TensorProto
        >>> with blockdsl.empty_base() as handle:
        ...     _ = blockdsl.input("x", shape=(2,)) * 2
        >>> double = in_precision(handle.model, TensorProto.DOUBLE)
        >>> double.graph.input[0].type.tensor_type.elem_type == TensorProto.DOUBLE
        True
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    opset = opset_of(model) or 1
    _convert_graph(copy.graph, elem_type, opset)
    for function in copy.functions:
        _convert_nodes(function.node, elem_type, set(), opset)
        for value in function.value_info:
            _convert_type(value.type, elem_type)
    return copy


def _convert_graph(graph: GraphProto, elem_type: int, opset: int) -> None:
    fixed = _fixed_tensors(graph.node, opset)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.name not in fixed:
            _convert_type(value.type, elem_type)
    for tensor in graph.initializer:
        if tensor.name not in fixed:
            _convert_tensor(tensor, elem_type)
    _convert_nodes(graph.node, elem_type, fixed, opset)


def _fixed_tensors(nodes: Iterable[NodeProto], opset: int) -> set[str]:
    """Return the tensors that an operator takes or returns as float32, whatever its other types."""
    fixed = set[str]()
    for node in nodes:
        form = operator(node.op_type, opset, node.domain)
        if form is None:
            continue
        if form.schema is None:
            outputs = zip(node.output, form.outputs, strict=False)
            fixed.update(name for name, parameter in outputs if parameter.type == STATISTIC)
            continue
        for name, parameter in zip(node.input, form.inputs, strict=False):
            if parameter.type == "tensor(float)":
                fixed.add(name)
        if any("tensor(double)" in form.types_of(p) for p in form.inputs):
            for name, result in zip(node.output, form.outputs, strict=False):
                if not any("double" in kind for kind in form.types_of(result)):
                    fixed.add(name)
    return fixed


def _convert_nodes(nodes: Iterable[NodeProto], elem_type: int, fixed: set[str], opset: int) -> None:
    for node in nodes:
        if node.op_type == "Constant" and node.output[0] in fixed:
            continue
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                _convert_tensor(attribute.t, elem_type)
            elif attribute.type == AttributeProto.GRAPH:
                _convert_graph(attribute.g, elem_type, opset)
            elif attribute.name in _TYPE_ATTRIBUTES and attribute.i in FLOATS:
                attribute.i = elem_type
        if node.op_type == "Constant":
            _convert_constant(node, elem_type)


_TYPE_ATTRIBUTES = {"to", "dtype", "output_dtype", "precision", "softmax_precision"}
"""The attributes that name an element type."""


def _convert_constant(node: NodeProto, elem_type: int) -> None:
    """A `Constant` written as a number or a list of numbers, which is float32 by definition."""
    attribute = node.attribute[0]
    if attribute.name in ("value_float", "value_floats"):
        value = attribute.f if attribute.name == "value_float" else list(attribute.floats)
        tensor = numpy_helper.from_array(np.asarray(value, np_dtype(elem_type)))
        attribute.Clear()
        attribute.name, attribute.type = "value", AttributeProto.TENSOR
        attribute.t.CopyFrom(tensor)


def _convert_tensor(tensor: TensorProto, elem_type: int) -> None:
    if tensor.data_type in FLOATS and tensor.data_type != elem_type:
        array = numpy_helper.to_array(tensor).astype(np_dtype(elem_type))
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _convert_type(proto: TypeProto, elem_type: int) -> None:
    if proto.HasField("tensor_type"):
        if proto.tensor_type.elem_type in FLOATS:
            proto.tensor_type.elem_type = elem_type
    elif proto.HasField("sequence_type"):
        _convert_type(proto.sequence_type.elem_type, elem_type)
    elif proto.HasField("optional_type"):
        _convert_type(proto.optional_type.elem_type, elem_type)
