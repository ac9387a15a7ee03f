"""Sparse tensors of a model, written dense: training changes every element of a weight."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import GraphProto, ModelProto, SparseTensorProto, TensorProto, numpy_helper

from blockdsl.errors import GraphError
from blockdsl.graph.tensor import array_of
from blockdsl.graph.walk import nodes_of, subgraphs


def densify(model: ModelProto) -> None:
    """Write the sparse initializers and sparse Constants of a model dense, in place.

    Raises:
        GraphError: The indices of one do not fit its values or its shape.
    """
    for graph in _graphs(model):
        graph.initializer.extend(map(dense_tensor, graph.sparse_initializer))
        del graph.sparse_initializer[:]
    for node in nodes_of(model):
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "sparse_value":
                tensor = dense_tensor(attribute.sparse_tensor)
                attribute.Clear()
                attribute.name, attribute.type = "value", attribute.TENSOR
                attribute.t.CopyFrom(tensor)


def dense_tensor(sparse: SparseTensorProto) -> TensorProto:
    """Return the dense form of a sparse tensor, under its name.

    Its indices are places in the flat tensor, or coordinates, one row a value.

    Raises:
        GraphError: The indices do not fit the values or the shape.
    """
    name, shape = sparse.values.name, tuple(sparse.dims)
    values = array_of(sparse.values).reshape(-1)
    if not values.size:
        return numpy_helper.from_array(np.zeros(shape, values.dtype), name)
    indices = array_of(sparse.indices)
    dense = np.zeros(shape, values.dtype)
    try:
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.reshape(values.size, len(shape)).T)] = values
    except (IndexError, ValueError) as error:
        raise GraphError(
            f"The sparse tensor {name!r} of shape {shape} has {values.size} values and indices of "
            f"shape {indices.shape} that do not fit it: {error}."
        ) from error
    return numpy_helper.from_array(dense, name)


def _graphs(model: ModelProto) -> Iterator[GraphProto]:
    yield model.graph
    for node in nodes_of(model):
        yield from subgraphs(node)
