"""Which operators only the training build has, and what each is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from blockdsl.gradient.composites import composite
from blockdsl.graph.schema import MICROSOFT

Function = TypeVar("Function", bound=Callable[..., Any])

BODIES: set[tuple[str, str]] = set()
"""(domain, operator) of what has a body here."""

REFUSED: dict[tuple[str, str], str] = {}
"""(domain, operator) -> why it has none, for those that gradients of onnxruntime-training hold."""


def training_operator(*op_types: str, domain: str = MICROSOFT) -> Callable[[Function], Function]:
    """Register the body of an operator of the training build, as `composite` does.

    Args:
        *op_types: The operators.
        domain: Their domain.

    Returns:
        A decorator that returns the function unchanged.
    """

    def register(function: Function) -> Function:
        composite(*op_types, domain=domain)(function)
        BODIES.update((domain, op_type) for op_type in op_types)
        return function

    return register


def refuse(*op_types: str, reason: str, domain: str = MICROSOFT) -> None:
    """Declare that operators of the training build have no body.

    Args:
        *op_types: The operators.
        reason: Why, and what to do instead: the end of a sentence that names the operator.
        domain: Their domain.
    """
    REFUSED.update(((domain, op_type), reason) for op_type in op_types)
