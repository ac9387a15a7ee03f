"""Rules of operators that choose among elements by what they are."""

from __future__ import annotations

from collections.abc import Sequence

from blockdsl.gradient.registry import no_gradient, vjp
from blockdsl.graph import op
from blockdsl.graph.portable import where
from blockdsl.graph.value import Value


@vjp("Where", broadcast=True)
def where_(
    g: Value, y: Value, condition: Value, a: Value, b: Value
) -> tuple[None, Value, Value]:
    """y = a where the condition holds, else b        da = g there        db = g elsewhere"""
    return None, where(condition, g, 0), where(condition, 0, g)
