"""Models extended by their gradients, and how they run on ONNX Runtime."""

from __future__ import annotations

import functools
import operator

import numpy as np
from onnx import TensorProto

from blockdsl.gradient import build_gradients
from blockdsl.graph import Graph, activate
from blockdsl.testing import assert_close, evaluate
from tests.engines import run


def with_gradients(model, outputs, wrt, check=True):
    """A model that also takes a cotangent `<output>_seed` for each of these outputs, and gives the
    gradients of their products; it passes the full check."""
    graph = Graph(type(model).FromString(model.SerializeToString()))
    terms = []
    with activate(graph):
        for output in outputs:
            kind = graph.type_of(output)
            seed = graph.add_input(f"{output}_seed", kind.elem_type, kind.shape)
            term = (graph.value(output) * seed).sum()
            terms.append(term.cast(terms[0].dtype) if terms else term)
        gradients = build_gradients(graph, functools.reduce(operator.add, terms), wrt)
    graph.set_outputs([*gradients.values(), *outputs])
    if check:
        graph.check()
    return graph.proto


def check_parity(single, double, feeds, outputs, wrt, rng, rtol=None):
    """Compare the gradients of a float32 model on ONNX Runtime with those of its float64 twin on
    the reference evaluator."""
    wide = in_type_of(double, feeds)
    graph = Graph(type(double).FromString(double.SerializeToString()))
    graph.set_outputs(outputs)
    for output, value in zip(outputs, evaluate(graph.proto)(wide), strict=True):
        feeds = {**feeds, f"{output}_seed": rng.standard_normal(value.shape)}
    graph_32 = with_gradients(single, outputs, wrt)
    # Some schemas take no float64, and neither does onnx's inference of some function bodies.
    graph_64 = with_gradients(double, outputs, wrt, check=False)
    expected = evaluate(graph_64)(in_type_of(graph_64, feeds))
    found = run(graph_32, in_type_of(graph_32, feeds))
    for name, got, value in zip(wrt, found, expected, strict=False):
        assert_close(got, value, gradient=True, rtol=rtol, what=f"the gradient by {name!r}")


def in_type_of(model, feeds):
    """What a model is fed, its floats in the type that the model declares."""
    types = {i.name: i.type.tensor_type.elem_type for i in model.graph.input}
    dtypes = {TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64}
    return {
        name: np.asarray(value, dtypes[types[name]]) if types.get(name) in dtypes else value
        for name, value in feeds.items()
    }
