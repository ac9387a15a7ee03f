"""Products with Jacobians and Hessians, as models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx

from blockdsl.gradient.engine import build_gradients
from blockdsl.gradient.interface import interface_names
from blockdsl.gradient.models import opened
from blockdsl.graph import activate, op
from blockdsl.graph.model import Graph
from blockdsl.graph.shapes import zeros_like
from blockdsl.graph.value import Value

Names = Sequence[str] | str


def vjp(
    model: onnx.ModelProto,
    wrt: Names,
    of: Names | None = None,
    *,
    names: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """A model that also multiplies vectors by its Jacobian: `sum_y <cotangent_y, dy/dx>`.

    Args:
        model: A model; it is not changed.
        wrt: The tensors x to differentiate by.
        of: The tensors y to differentiate, of any shape; the model's outputs by default.
        names: Other names for what is added: `names={"x_grad": "slope"}`. Without one, what the
            model has as an input or output already gets a number: `x_grad_1`.

    Returns:
        The model with an input `<y>_cotangent` for each y, of its type and shape, and after its own
        outputs an output `<x>_grad` for each x.

    Raises:
        UnknownNameError: The model has no tensor of that name.
        GradientError: A tensor is not floating-point, or has no gradient.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base() as handle:
        ...     y = blockdsl.input("x", shape=("batch", 3)).tanh()
        ...     blockdsl.graph.current().set_outputs([y])
        >>> model = blockdsl.vjp(handle.model, wrt="x")
        >>> [i.name for i in model.graph.input], [o.name for o in model.graph.output]
        (['x', 'Tanh_cotangent'], ['Tanh', 'x_grad'])
    """
    graph, outputs, inputs, tops = opened(model, wrt, of)
    promised = [*_each(tops, "cotangent"), *_each(inputs, "grad")]
    added = interface_names(graph, promised, [*inputs, *tops], names)
    with activate(graph):
        vectors = {y: _vector(graph, y, added[f"{y}_cotangent"]) for y in tops}
        gradients = build_gradients(graph, _inner(graph, vectors), inputs)
        graph.rename({gradients[x]: added[f"{x}_grad"] for x in gradients})
    return _closed(graph, [*outputs, *(added[name] for name in _each(inputs, "grad"))])


def jvp(
    model: onnx.ModelProto,
    wrt: Names,
    of: Names | None = None,
    *,
    names: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """A model that also multiplies its Jacobian by vectors: `sum_x dy/dx tangent_x`.

    It is the gradient, by a cotangent, of the product with that cotangent, which is linear in it.

    Args:
        model: A model; it is not changed.
        wrt: The tensors x to differentiate by.
        of: The tensors y to differentiate, of any shape; the model's outputs by default.
        names: Other names for what is added: `names={"x_tangent": "slope"}`. Without one, what the
            model has as an input or output already gets a number: `x_tangent_1`.

    Returns:
        The model with an input `<x>_tangent` for each x, of its type and shape, and after its own
        outputs an output `<y>_tangent` for each y.

    Raises:
        UnknownNameError: The model has no tensor of that name.
        GradientError: A tensor is not floating-point, or has no second derivative.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base() as handle:
        ...     y = blockdsl.input("x", shape=("batch", 3)).tanh()
        ...     blockdsl.graph.current().set_outputs([y])
        >>> model = blockdsl.jvp(handle.model, wrt="x")
        >>> [i.name for i in model.graph.input], [o.name for o in model.graph.output]
        (['x', 'x_tangent'], ['Tanh', 'Tanh_tangent'])
    """
    graph, outputs, inputs, tops = opened(model, wrt, of)
    promised = [*_each(inputs, "tangent"), *_each(tops, "tangent")]
    added = interface_names(graph, promised, [*inputs, *tops], names)
    with activate(graph):
        tangents = {x: _vector(graph, x, added[f"{x}_tangent"]) for x in inputs}
        # Identity: a cotangent of its own for each y, though constants are shared.
        zeros = {y: op.Identity(zeros_like(graph.value(y))) for y in tops}
        gradients = build_gradients(graph, _inner(graph, zeros), inputs)
        product = _inner(graph, {gradients[x]: tangent for x, tangent in tangents.items()})
        found = build_gradients(graph, product, [str(zero) for zero in zeros.values()])
        graph.rename({found[str(zero)]: added[f"{y}_tangent"] for y, zero in zeros.items()})
    return _closed(graph, [*outputs, *(added[name] for name in _each(tops, "tangent"))])


def hvp(
    model: onnx.ModelProto,
    wrt: Names,
    of: str | None = None,
    *,
    names: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """A model that also multiplies its Hessian by vectors: `d/dx sum_z <dy/dz, vector_z>`.

    Args:
        model: A model; it is not changed.
        wrt: The tensors x to differentiate by.
        of: The tensor y to differentiate, of one element; the model's first output by default.
        names: Other names for what is added: `names={"x_grad": "slope"}`. Without one, what the
            model has as an input or output already gets a number: `x_grad_1`.

    Returns:
        The model with an input `<x>_vector` for each x, of its type and shape, and after its own
        outputs `<x>_grad` and then `<x>_hvp` for each x.

    Raises:
        UnknownNameError: The model has no tensor of that name.
        GradientError: `of` is not a floating-point scalar, or has no second derivative.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base() as handle:
        ...     y = blockdsl.input("x", shape=("batch", 3)).tanh().sum()
        ...     blockdsl.graph.current().set_outputs([y])
        >>> model = blockdsl.hvp(handle.model, wrt="x")
        >>> [o.name for o in model.graph.output]
        ['ReduceSum', 'x_grad', 'x_hvp']
    """
    graph, outputs, inputs, tops = opened(model, wrt, of)
    promised = [name for kind in ("vector", "grad", "hvp") for name in _each(inputs, kind)]
    added = interface_names(graph, promised, [*inputs, *tops], names)
    first = [added[name] for name in _each(inputs, "grad")]
    with activate(graph):
        vectors = {x: _vector(graph, x, added[f"{x}_vector"]) for x in inputs}
        built = build_gradients(graph, tops[0], inputs)
        graph.rename({built[x]: added[f"{x}_grad"] for x in built})
        gradients = dict(zip(inputs, first, strict=True))
        product = _inner(graph, {gradients[x]: vector for x, vector in vectors.items()})
        # What the first gradients are must outlive the second pass.
        graph.set_outputs([*outputs, *first])
        found = build_gradients(graph, product, inputs)
        graph.rename({found[x]: added[f"{x}_hvp"] for x in found})
    return _closed(graph, [*outputs, *first, *(added[name] for name in _each(inputs, "hvp"))])


def _each(names: Iterable[str], kind: str) -> list[str]:
    return [f"{name}_{kind}" for name in names]


def _vector(graph: Graph, like: str, name: str) -> Value:
    """An input of the type and shape of a tensor."""
    found = graph.type_of(like)
    return graph.add_input(name, found.elem_type, found.shape)


def _inner(graph: Graph, pairs: Mapping[str, Value]) -> Value:
    """The sum of inner products of tensors."""
    terms = [(graph.value(name) * vector).sum() for name, vector in pairs.items()]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _closed(graph: Graph, outputs: Iterable[str]) -> onnx.ModelProto:
    graph.set_outputs(outputs)
    graph.check()
    return graph.proto
