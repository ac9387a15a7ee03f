"""Which parameters are trained and which are frozen."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np
from onnx import ModelProto, NodeProto

from blockdsl.artifacts.lifting import lift
from blockdsl.artifacts.roles import CONSTANT, PREPROCESSING, Role, roles
from blockdsl.artifacts.slots import STATISTIC
from blockdsl.errors import ArtifactError, BlockWarning, GradientError, UnknownNameError, near
from blockdsl.gradient import influences
from blockdsl.gradient.reach import before_integers, reach
from blockdsl.graph.model import Graph
from blockdsl.graph.sparse import densify
from blockdsl.graph.tensor import FLOATS

ALL = ["all"]
"""`requires_grad` for every parameter that the loss depends on, less what is frozen."""


_SIZEABLE = 64
"""Values from which on a constant is worth a warning: scales, bounds and means have fewer."""


@dataclass(frozen=True)
class Request:
    """Names and globs of parameters, as the caller gave them.

    Attributes:
        requires_grad: Those that are trained, or `ALL`.
        frozen_params: Those that are frozen.
        inputs: Whether inputs of the model may be differentiated by, too.
    """

    requires_grad: Sequence[str]
    frozen_params: Sequence[str]
    inputs: bool = False

    @property
    def is_default(self) -> bool:
        """Whether all parameters are trained that can be."""
        return list(self.requires_grad) == ALL


@dataclass(frozen=True)
class Selection:
    """What becomes of the tensors of a model, each list in the model's order.

    Attributes:
        trained: The names of those that are trained.
        frozen: The names of those that are frozen.
        roles: The roles of all of them.
        blocked: Parameters that no gradient reaches, and the node that keeps it from them.
        left_out: Sizeable tensors that nobody named and that are no parameters by a guess.
    """

    trained: list[str]
    frozen: list[str]
    roles: dict[str, Role]
    blocked: dict[str, NodeProto] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def lift_parameters(model: ModelProto, request: Request, weights: Mapping[str, np.ndarray]) -> None:
    """Make parameters in Constant nodes, bodies and functions initializers of the graph, in place.

    Args:
        model: The model.
        request: Names and globs: of the tensors that are no parameters, those named are lifted.
        weights: The values of initializers that lie in other files.
    """
    densify(model)
    found = roles(model, weights)
    exact = {*request.requires_grad, *request.frozen_params}
    everything = request.is_default
    lift(
        model,
        [
            role.source
            for name, role in found.items()
            if name in exact
            or (role.trained and (everything or any(fnmatchcase(name, p) for p in exact)))
        ],
    )


def resolve(
    graph: Graph, loss: str, request: Request, weights: Mapping[str, np.ndarray]
) -> Selection:
    """Return the trained and the frozen parameters.

    Args:
        graph: The model, its parameters lifted.
        loss: The tensor that is minimised.
        request: Names and globs of what is trained and frozen.
        weights: The values of initializers that lie in other files.

    Raises:
        UnknownNameError: A name or glob of `requires_grad` matches nothing.
        ArtifactError: A name is both trained and frozen, or cannot be trained.
        GradientError: A name is before a quantised product.
    """
    found = roles(graph, weights)
    frozen = _frozen(request.frozen_params, graph, found)
    if request.is_default:
        names = [n for n in graph.initializer_names() if n in found and n not in set(frozen)]
        candidates = [name for name in names if found[name].trained]
        reached = reach(graph, loss, candidates)
        unnamed = _guessed(graph, found)
        left_out = influences(graph, loss, [name for name in unnamed if name not in set(frozen)])
        return Selection(reached.reached, frozen, found, reached.blocked, left_out)
    trained = _trained(request, graph, found)
    both = sorted(set(trained) & set(frozen))
    if both:
        raise ArtifactError(
            f"A parameter cannot be frozen and require gradient computation at the same time "
            f"{set(both)}: name it in requires_grad or in frozen_params."
        )
    for name, node in before_integers(graph, loss, trained).items():
        raise GradientError(
            f"requires_grad: {name!r} reaches the loss through {node.op_type} (node "
            f"{node.name!r}), which has no gradient. Train the model before it is quantised."
        )
    return Selection(trained, frozen, found)


def _guessed(graph: Graph, found: Mapping[str, Role]) -> list[str]:
    """Return the large tensors that are constants by what they meet, not by a slot or by values."""
    return [
        name
        for name, role in found.items()
        if role.kind in (CONSTANT, PREPROCESSING)
        and role.values >= _SIZEABLE
        and role.source.is_outermost
        and name not in graph.constants_made
    ]


def _frozen(patterns: Iterable[str], graph: Graph, found: Mapping[str, Role]) -> list[str]:
    names = graph.initializer_names()
    chosen: set[str] = set()
    for pattern in patterns:
        matching = [pattern] if pattern in names else _glob(pattern, names)
        if not matching:
            # Scripts of PyTorch name its buffers here, of which the exporter keeps none.
            warnings.warn(
                f"frozen_params: {_no_match(pattern, graph, found)} Nothing is frozen by it.",
                BlockWarning,
                stacklevel=2,
            )
        chosen.update(matching)
    return [name for name in names if name in chosen]


def _trained(request: Request, graph: Graph, found: Mapping[str, Role]) -> list[str]:
    inputs = graph.user_inputs() if request.inputs else []
    names = [*graph.initializer_names(), *inputs]
    chosen: set[str] = set()
    for pattern in request.requires_grad:
        if pattern in names:
            _check_trainable(graph, pattern)
            chosen.add(pattern)
            continue
        matching = _glob(pattern, names[: len(names) - len(inputs)])
        if not matching:
            raise UnknownNameError(f"requires_grad: {_no_match(pattern, graph, found)}")
        chosen.update(_meant(matching, found))
    return [name for name in names if name in chosen]


def _glob(pattern: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if fnmatchcase(name, pattern)]


def _meant(names: Sequence[str], found: Mapping[str, Role]) -> list[str]:
    """Return the parameters among what a glob matches; without any, the other floats."""
    given = {name: found[name] for name in names if name in found}
    parameters = [name for name, role in given.items() if role.trained]
    return parameters or [
        name
        for name, role in given.items()
        if role.source.elem_type in FLOATS and role.kind != STATISTIC
    ]


def _no_match(pattern: str, graph: Graph, found: Mapping[str, Role]) -> str:
    if pattern in graph.user_inputs():
        return (
            f"Node arg {pattern} is an input of the model, and only parameters are trained. For a "
            f"gradient by an input use blockdsl.grad(model, wrt=[{pattern!r}]), or leave the "
            f"optimizer out."
        )
    if pattern in graph:
        return (
            f"Node arg {pattern} is computed by the model, and only parameters (initializers) are "
            f"trained. For its gradient use blockdsl.grad."
        )
    given = [name for name in graph.initializer_names() if name not in graph.constants_made]
    nested = [name for name, role in found.items() if role.trained and name not in given]
    return f"Node arg {pattern} is not found in the graph. {near(pattern, [*given, *nested])}"


def _check_trainable(graph: Graph, name: str) -> None:
    kind = graph.type_of(name)
    if not kind.is_float:
        raise ArtifactError(
            f"requires_grad: {name!r} has the type {kind}: only floating-point parameters can be "
            f"trained. requires_grad='all' skips the others."
        )
