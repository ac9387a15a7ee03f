"""Elements that a model computes and then puts something else in the place of.

`Where(b > 0, a / b, 0)` divides by zero and does not read it. No cotangent comes back to such an
element, and none must go on from it: but 0 times an infinite derivative is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import NodeProto

from blockdsl.gradient.registry import Rule
from blockdsl.graph.value import Value

_CHOOSING = frozenset({"Where", "Clip", "Max", "Min"})
"""Operators that put something else in the place of some elements."""

_PASSING = frozenset({"Cast", "CastLike", "Identity"})
"""Operators that hand on every element, besides those whose rules say so."""


def note_replaced(node: NodeProto, rule: Rule, replaced: set[str]) -> None:
    """Note the tensors of which some elements may be replaced, in a walk from the end.

    Args:
        node: The node; those that read what it returns have been noted.
        rule: Its rule.
        replaced: The tensors noted so far.
    """
    op_type = "" if rule.domain else node.op_type
    by_element = rule.broadcast or rule.singular is not None or op_type in _PASSING
    if op_type in _CHOOSING or (by_element and node.output[0] in replaced):
        replaced.update(node.input)


def is_singular(rule: Rule, inputs: Sequence[Value | None]) -> bool:
    """Whether the derivative of an operator may be infinite for some elements only."""
    if rule.singular is None:
        return False
    at = inputs[rule.singular]
    return at is None or not at.is_static or any(d != 1 for d in at.shape)
