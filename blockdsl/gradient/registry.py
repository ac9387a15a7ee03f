"""Gradient rules: one function per operator, checked against the ONNX schema when imported.

A rule maps the cotangent of what an operator returns to the cotangents of what it took::

    @vjp("Div")
    def div(g, y, a, b):
        '''y = a / b        da = g / b        db = -g * y / b'''
        return g / b, -g * y / b

Its parameters are, in this order: the cotangent `g`, the output `y`, and the inputs of the newest
schema, `*xs` where that is variadic; then, keyword-only, the attributes it needs. An operator that
can have several outputs gets sequences for `g` and `y`: `g[i]` is zero where nothing flows back,
and asking for `y[i]` declares an optional output on the node.

An operator with bodies (`If`, `Loop`, `Scan`) reads tensors of the scope around them that are none
of its inputs. Its rule asks for `wanted`, the names that cotangents are wanted for, and returns
after the cotangents of the inputs a mapping from such names to theirs. A rule that asks for
`replaced` is told whether the model may put something else in the place of some elements of its
first output.

What an older opset writes as an attribute arrives as the input that newer ones have. Undoing
broadcasts, summing over uses, and skipping what nobody asked for is the engine's work.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from onnx.defs import onnx_opset_version

from blockdsl.errors import GradientError
from blockdsl.graph.microsoft import newest
from blockdsl.graph.schema import Operator, all_attributes

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Rule:
    """A gradient rule and what its signature says."""

    op_type: str
    domain: str
    function: Callable[..., Any]
    attributes: tuple[str, ...]
    variadic: bool
    several_outputs: bool
    inputs: int
    sees_bodies: bool
    sees_replaced: bool
    broadcast: bool = False
    straight_through: bool = False
    singular: int | None = None
    wide: bool = False

    @property
    def formula(self) -> str:
        """The rule's mathematics: the first line of its docstring."""
        return (inspect.getdoc(self.function) or "").split("\n")[0]


WANTED = "wanted"
"""The keyword of a rule of an operator with bodies."""

REPLACED = "replaced"
"""The keyword of a rule that depends on whether all elements of the operator's output are read."""

NEWEST_OPSET = 28
"""The newest opset that the rules know. An older onnx lacks some attributes: no node has them."""

RULES: dict[tuple[str, str], Rule] = {}
"""(domain, operator) -> rule."""

NO_GRADIENT: dict[tuple[str, str], str] = {}
"""(domain, operator) -> why it has no derivative."""


def vjp(
    *op_types: str,
    domain: str = "",
    broadcast: bool = False,
    straight_through: bool = False,
    singular: int | None = None,
    wide: bool = False,
) -> Callable[[Function], Function]:
    """Register the gradient rule of an operator, or of several that share it.

    Args:
        *op_types: The operators.
        domain: Their domain.
        broadcast: The operator broadcasts its inputs to one shape: their cotangents, given in
            that shape, are summed back.
        straight_through: The integers that the operator returns stand for floats, and have a
            cotangent of that type: gradients flow through quantization.
        singular: The index of the input at some of whose values the derivative of an operator that
            works element by element is infinite, or none. Where the model puts something else in
            the place of such elements, nothing flows back, and nothing is what the rule returns.
        wide: Compute in float32 what is float16 or bfloat16, because sums over many terms need it:
            the rule gets wide tensors, and its cotangents are cast back.

    Returns:
        A decorator that returns the function unchanged. A later rule replaces an earlier one.

    Raises:
        GradientError: The signature does not fit the operator's schema.

    Example:
        >>> from blockdsl.gradient import vjp
        >>> @vjp("Scale", domain="my.domain")
        ... def scale(g, y, x, *, factor):
        ...     '''y = factor x        dx = factor g'''
        ...     return g * factor
    """
    settings: dict[str, Any] = {
        "broadcast": broadcast,
        "straight_through": straight_through,
        "singular": singular,
        "wide": wide,
    }

    def register(function: Function) -> Function:
        for op_type in op_types:
            rule = _checked(op_type, domain, function)
            RULES[domain, op_type] = replace(rule, **settings)
            NO_GRADIENT.pop((domain, op_type), None)
        return function

    return register


def no_gradient(*op_types: str, reason: str, domain: str = "") -> None:
    """Declare that operators have no derivative, or one that is zero wherever it exists.

    Args:
        *op_types: The operators.
        reason: Why, for error messages and the coverage table.
        domain: Their domain.
    """
    for op_type in op_types:
        NO_GRADIENT[domain, op_type] = reason


def rule_of(op_type: str, domain: str = "") -> Rule | None:
    """The rule of an operator, `None` if it has none."""
    return RULES.get((domain, op_type))


def _checked(
    op_type: str,
    domain: str,
    function: Callable[..., Any],
) -> Rule:
    shown = f"{domain}::{op_type}" if domain else op_type
    parameters = list(inspect.signature(function).parameters.values())
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    attributes = tuple(name for name in keywords if name not in (WANTED, REPLACED))
    form = newest(op_type, domain)
    if form is not None:
        _check_against_schema(shown, form, positional, variadic, attributes)
    several = form is not None and (len(form.outputs) > 1 or form.outputs[-1].variadic)
    return Rule(
        op_type,
        domain,
        function,
        attributes,
        variadic,
        several,
        inputs=len(positional) - 2,
        sees_bodies=WANTED in keywords,
        sees_replaced=REPLACED in keywords,
    )


def _check_against_schema(
    shown: str,
    form: Operator,
    positional: list[inspect.Parameter],
    variadic: bool,
    attributes: tuple[str, ...],
) -> None:
    wanted = [p.name for p in form.inputs if not p.variadic]
    given = [p.name for p in positional[2:]]
    if len(given) != len(wanted) or variadic != any(p.variadic for p in form.inputs):
        raise GradientError(
            f"The rule of {shown} takes the inputs ({', '.join(given)}), and the operator has "
            f"({', '.join(form.input_names)}): name every one, in order, after g and y."
        )
    known = all_attributes(form.name, form.domain) | set(form.attributes)
    unknown = sorted(set(attributes) - known)
    if unknown and onnx_opset_version() >= NEWEST_OPSET:
        raise GradientError(
            f"The rule of {shown} asks for {', '.join(unknown)}, and the operator has no such "
            f"attribute in any opset."
        )
