"""Gradients of models, without training."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import onnx

from blockdsl.errors import GradientError, UnknownNameError, near
from blockdsl.gradient.engine import build_gradients
from blockdsl.gradient.interface import interface_names
from blockdsl.graph.model import Graph


def grad(
    model: onnx.ModelProto,
    wrt: Sequence[str] | str,
    of: str | None = None,
    *,
    names: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """A model that also computes gradients.

    Args:
        model: A model; it is not changed, and its parameters stay inside.
        wrt: The names of the tensors to differentiate by: inputs, parameters or intermediate
            tensors, all floating-point.
        of: The tensor to differentiate, of one element; the model's first output by default.
        names: Other names for what is added: `names={"x_grad": "slope"}`.

    Returns:
        The model with, after its own outputs, `of` if it is none of them, and then for every name
        in `wrt` an output `<name>_grad` of its type and shape: with a number, `<name>_grad_1`, if
        the model has an input or output of that name already.

    Raises:
        UnknownNameError: The model has no tensor of that name.
        GradientError: `of` is not a floating-point scalar, or has no gradient by one of `wrt`, or
            `names` gives a name that is taken.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base() as handle:
        ...     x = blockdsl.input("x", shape=("batch", 3))
        ...     energy = x.square().sum()
        ...     blockdsl.graph.current().set_outputs([energy])
        >>> model = blockdsl.grad(handle.model, wrt=["x"])
        >>> [output.name for output in model.graph.output]
        ['ReduceSum', 'x_grad']
    """
    graph, outputs, inputs, (top, *_) = opened(model, wrt, of)
    added = interface_names(graph, [f"{x}_grad" for x in inputs], [*inputs, top], names)
    gradients = build_gradients(graph, top, inputs)
    graph.rename({gradients[x]: added[f"{x}_grad"] for x in gradients})
    extra = [] if top in outputs else [top]
    graph.set_outputs([*outputs, *extra, *added.values()])
    graph.check()
    return graph.proto


def opened(
    model: onnx.ModelProto, wrt: Sequence[str] | str, of: Sequence[str] | str | None
) -> tuple[Graph, list[str], list[str], list[str]]:
    """A copy of a model to differentiate, and the names that its user gave.

    Args:
        model: The model.
        wrt: What to differentiate by.
        of: What to differentiate; all outputs of the model by default.

    Returns:
        The copy, the names of its outputs, and the names to differentiate by and of.

    Raises:
        UnknownNameError: The model has no tensor of that name.
        GradientError: These are no model and no names, or the model has no outputs.
    """
    if not isinstance(model, onnx.ModelProto):
        raise GradientError(
            f"The model is an onnx.ModelProto, not a {type(model).__name__}: read one from a file "
            f"with onnx.load(path)."
        )
    names, tops = ([n] if isinstance(n, str) else n for n in (wrt, [] if of is None else of))
    if not all(
        isinstance(part, Sequence) and all(isinstance(n, str) for n in part)
        for part in (names, tops)
    ):
        raise GradientError(f"wrt and of are names of tensors, not {wrt!r} and {of!r}.")
    graph = Graph(copy.deepcopy(model))
    outputs = [output.name for output in model.graph.output]
    if not tops and not outputs:
        raise GradientError("The model has no outputs: say what to differentiate, with of=...")
    for name in (*names, *tops):
        if name not in graph:
            raise UnknownNameError(
                f"Node arg {name} is not found in the graph. {near(name, graph.known_names())}"
            )
    return graph, outputs, [str(n) for n in names], [str(n) for n in tops or outputs]
