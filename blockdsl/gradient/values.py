"""Gradients of values of the model under construction."""

from __future__ import annotations

from typing import Any

from blockdsl.errors import GradientError
from blockdsl.gradient.engine import build_gradients
from blockdsl.graph import current
from blockdsl.graph.structure import leaves_of, mapped


def gradients(y: str, x: Any, seed: str | None = None) -> Any:
    """Append the gradient `dy/dx` to the model under construction: `sum_i seed_i dy_i/dx`.

    It is a part of the model like any other: it can be used in a loss, differentiated in turn, and
    built in the body of a branch or loop, of tensors in and around it. There, a state or slice of
    the loop is a variable of its own.

    Args:
        y: The tensor to differentiate, floating-point; of one element unless a seed is given.
        x: The tensor to differentiate by, or several: a tuple, a list, a dictionary.
        seed: The cotangent of y, of its type and shape; one by default.

    Returns:
        The gradient by x, of its type and shape; for several, in the same structure.

    Raises:
        NoBaseError: No model is open.
        UnknownNameError: The model has no tensor of that name.
        GradientError: y is no floating-point scalar and there is no seed, x is not floating-point,
            or an operator between the two has no gradient.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base() as handle:
        ...     x = blockdsl.input("x", shape=("batch", 3))
        ...     slope = blockdsl.gradients(x.tanh().sum(), x)
        ...     curvature = blockdsl.gradients(slope.sum(), x)
        ...     print(slope, slope.type, curvature)
        x_grad float32[batch, 3] x_grad_1
    """
    names = list(dict.fromkeys(leaves_of(x)))
    if not names or not all(isinstance(name, str) for name in (y, *names)):
        raise GradientError(
            f"y must be a tensor and x a tensor, or a tuple, list or dictionary of tensors, got "
            f"{y!r} and {x!r}."
        )
    results = build_gradients(current(), y, names, seed)
    return mapped(lambda name: results[str(name)], x)
