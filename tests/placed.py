"""Small models whose constants lie in every place that a model has for them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

PLACES = ("initializer", "Constant", "sparse", "branch", "branch Constant", "function", "loop")


def constant(name, array):
    """A Constant node, in the form that fits the value."""
    array = np.asarray(array)
    if array.dtype == np.float32 and array.ndim < 2:
        form = {"value_floats": array.tolist()} if array.ndim else {"value_float": float(array)}
        return helper.make_node("Constant", [], [name], **form)
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))


def sparse(name, array, flat=True):
    """A sparse initializer, its indices places in the flat tensor or coordinates."""
    places = np.flatnonzero(array)
    values = numpy_helper.from_array(array.reshape(-1)[places], name)
    indices = places if flat else np.argwhere(array).astype(np.int64)
    return helper.make_sparse_tensor(
        values, numpy_helper.from_array(indices.astype(np.int64), f"{name}_indices"), array.shape
    )


def placed(nodes, arrays, place, x=("batch", 4), y=("batch", 3), dtype=np.float32, opset=17):
    """A model of nodes from `x` to `y`, and where its constants lie.

    Args:
        nodes: The nodes.
        arrays: The constants by their names.
        place: One of PLACES.
        x: The shape of the input.
        y: The shape of the output.
        dtype: The element type of both.
        opset: The opset of the model.
    """
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [helper.make_tensor_value_info("x", kind, x)]
    top = "out" if place in ("branch", "branch Constant", "loop") else "y"
    outputs = [helper.make_tensor_value_info(top, kind, y)]
    constants = [constant(name, array) for name, array in arrays.items()]
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    settings = {"functions": []}
    parts = {"initializer": [], "sparse_initializer": []}
    if place == "initializer":
        parts["initializer"] = tensors
    elif place == "Constant":
        nodes = [*constants, *nodes]
    elif place == "sparse":
        parts["sparse_initializer"] = [
            sparse(name, array, flat=i % 2 == 0)
            for i, (name, array) in enumerate(arrays.items())
            if np.ndim(array)
        ]
        parts["initializer"] = [t for t in tensors if not t.dims]
    elif place == "function":
        imports = [helper.make_opsetid("", opset)]
        body = [*constants, *nodes]
        settings["functions"] = [helper.make_function("own", "Body", ["x"], ["y"], body, imports)]
        nodes = [helper.make_node("Body", ["x"], ["y"], domain="own")]
    elif place == "loop":
        nodes, parts["initializer"] = _loop(nodes, tensors, kind, x, y)
    else:
        nodes = _branches(nodes, tensors, constants if "Constant" in place else None, y, kind)
    graph = helper.make_graph(nodes, "graph", inputs, outputs, **parts)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    imports.append(helper.make_opsetid("com.microsoft", 1))
    return helper.make_model(graph, opset_imports=imports, ir_version=8, **settings)


def _branches(nodes, tensors, constants, y, kind):
    """An If whose branches hold the same; the second one returns it negated."""
    inner = constants or []
    held = [] if constants else tensors
    other = helper.make_node("Neg", ["y"], ["z"])
    branches = {
        "then_branch": helper.make_graph(
            [*inner, *nodes], "then", [], [helper.make_tensor_value_info("y", kind, y)], held
        ),
        "else_branch": helper.make_graph(
            [*inner, *nodes, other], "else", [], [helper.make_tensor_value_info("z", kind, y)], held
        ),
    }
    condition = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Cast", ["top"], ["wide"], to=TensorProto.FLOAT),
        constant("low", np.float32(-1e6)),
        helper.make_node("Greater", ["wide", "low"], ["holds"]),
    ]
    return [*condition, helper.make_node("If", ["holds"], ["out"], name="choice", **branches)]


def _loop(nodes, tensors, kind, x, y):
    """A loop of one step that puts out what the nodes compute."""
    body = helper.make_graph(
        [*nodes, helper.make_node("Identity", ["going"], ["goes"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("y", kind, y),
        ],
        tensors,
    )
    count = numpy_helper.from_array(np.int64(1), "count")
    axes = numpy_helper.from_array(np.array([0]), "axes")
    loop = helper.make_node("Loop", ["count", ""], ["stacked"], body=body, name="repeat")
    return [loop, helper.make_node("Squeeze", ["stacked", "axes"], ["out"])], [count, axes]
