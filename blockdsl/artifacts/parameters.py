"""Which parameters are trained and which are frozen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import numpy as np
from onnx import TensorProto, numpy_helper

from blockdsl.errors import ArtifactError, UnknownNameError, near
from blockdsl.gradient import influences
from blockdsl.graph.check import is_small
from blockdsl.graph.model import Graph
from blockdsl.graph.tensor import FLOATS

_CONSTANTS = re.compile(r"^(val_\d+|/.*|constant/.*)$")
"""How constants are named that somebody's code made: PyTorch's exporters `val_3` and
`/encoder/Constant_output_0`, our blocks `constant/float32/[0.5,2.0]`."""

_SETTINGS = {
    "BatchNormalization": (3, 4),  # the running statistics
    "NegativeLogLikelihoodLoss": (2,),  # the weights of the classes
    "Resize": (1, 2),  # the region and the scales
    "SoftmaxCrossEntropyLoss": (2,),
}
"""Inputs that say how an operator works, and are no parameters whatever they are named."""


def resolve(
    graph: Graph,
    loss: str,
    requires_grad: Sequence[str],
    frozen_params: Sequence[str],
) -> tuple[list[str], list[str]]:
    """The names of the trained and the frozen parameters, in the model's order.

    Args:
        graph: The model.
        loss: The tensor that is minimised.
        requires_grad: Names and globs of what is trained; ["all"] for every parameter that the
            loss depends on, less what is frozen.
        frozen_params: Names and globs of what is frozen.

    Returns:
        The trained and the frozen names.

    Raises:
        UnknownNameError: A name or glob matches nothing.
        ArtifactError: A name is both trained and frozen, cannot be trained, or nothing is left.
    """
    names = graph.initializer_names()
    frozen = _matching(frozen_params, names, graph, "frozen_params")
    if list(requires_grad) == ["all"]:
        candidates = [n for n in parameter_names(graph) if n not in set(frozen)]
        trained = influences(graph, loss, candidates)
        if not trained:
            raise ArtifactError(
                f"The model has no parameter to train: the loss {str(loss)!r} depends on no "
                f"floating-point initializer that is not frozen. Models store parameters as "
                f"initializers; constants of an exporter and running statistics are none."
            )
        return trained, frozen
    trained = _matching(requires_grad, names, graph, "requires_grad")
    both = sorted(set(trained) & set(frozen))
    if both:
        raise ArtifactError(
            f"A parameter cannot be frozen and require gradient computation at the same time "
            f"{set(both)}: name it in requires_grad or in frozen_params."
        )
    _check_trainable(graph, trained)
    return trained, frozen


def parameter_names(graph: Graph) -> list[str]:
    """The initializers that are parameters, as far as a model tells.

    They are floating-point and have a rank. Settings of operators (the running statistics of batch
    normalisation), masks (any value that is not finite) and constants are no parameters.
    """
    settings, made = _settings(graph), set(graph.parameters)
    return [
        tensor.name
        for tensor in graph.proto.graph.initializer
        if tensor.name in made or (tensor.name not in settings and _looks_trained(graph, tensor))
    ]


def _settings(graph: Graph) -> set[str]:
    return {
        node.input[slot]
        for node in graph.proto.graph.node
        for slot in _SETTINGS.get(node.op_type, ())
        if slot < len(node.input)
    }


def _looks_trained(graph: Graph, tensor: TensorProto) -> bool:
    if tensor.data_type not in FLOATS or not tensor.dims or tensor.name in graph.constants_made:
        return False
    if _CONSTANTS.match(tensor.name):
        return False
    return not is_small(tensor) or bool(
        np.isfinite(numpy_helper.to_array(tensor).astype(np.float64)).all()
    )


def _matching(
    patterns: Iterable[str], names: Sequence[str], graph: Graph, argument: str
) -> list[str]:
    wanted: set[str] = set()
    for pattern in patterns:
        if pattern in names:
            wanted.add(pattern)
            continue
        found = [name for name in names if fnmatchcase(name, pattern)]
        if not found:
            raise UnknownNameError(_no_match(pattern, graph, names, argument))
        wanted.update(found if argument == "frozen_params" else _trainable(graph, found))
    return [name for name in names if name in wanted]


def _trainable(graph: Graph, names: Sequence[str]) -> list[str]:
    """What a glob means by names: not the integers and running statistics among them."""
    settings = _settings(graph)
    return [name for name in names if graph.type_of(name).is_float and name not in settings]


def _no_match(pattern: str, graph: Graph, names: Sequence[str], argument: str) -> str:
    if pattern in graph.user_inputs():
        return (
            f"{argument}: Node arg {pattern} is an input of the model, and only parameters are "
            f"trained. For a gradient by an input use blockdsl.grad(model, wrt=[{pattern!r}])."
        )
    if pattern in graph:
        return (
            f"{argument}: Node arg {pattern} is computed by the model, and only parameters "
            f"(initializers) are trained. For its gradient use blockdsl.grad."
        )
    given = [name for name in names if name not in graph.constants_made]
    return f"{argument}: Node arg {pattern} is not found in the graph. {near(pattern, given)}"


def _check_trainable(graph: Graph, names: Sequence[str]) -> None:
    for name in names:
        found = graph.type_of(name)
        if not found.is_float:
            raise ArtifactError(
                f"requires_grad: {name!r} has the type {found}: only floating-point parameters "
                f"can be trained. requires_grad='all' skips the others."
            )
