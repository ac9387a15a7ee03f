"""Rules of reductions.

A rule is written as if the reduced axes were kept, with length one: its `y` and `g` broadcast
against `x`, whatever the node says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from blockdsl.gradient.registry import no_gradient, vjp
from blockdsl.graph import op
from blockdsl.graph.portable import equal, sign, where
from blockdsl.graph.shapes import expand_like, reshape_exactly, shape_of, share_of
from blockdsl.graph.value import Value

no_gradient("ArgMax", "ArgMin", reason="it returns indices")


@dataclass(frozen=True)
class Axes:
    """What a node reduces: constant axes, or ones that are computed when the graph runs."""

    x: Value
    constant: list[int]
    computed: Value | None
    noop: bool

    @classmethod
    def of(cls, x: Value, axes: Value | None, noop_with_empty_axes: bool) -> Axes:
        """The axes that a node names: none means all, or none where it says so."""
        noop = bool(noop_with_empty_axes)
        known = np.array([], np.int64) if axes is None else axes.constant
        if known is None:
            return cls(x, [], axes, noop)
        named = [int(a) % x.rank for a in known]
        return cls(x, sorted(named or range(0 if noop else x.rank)), None, noop)

    def sum(self, x: Value) -> Value:
        """The sum of a tensor over these axes, which stay."""
        if self.computed is None:
            return x.sum(self.constant, keepdims=True)
        return op.ReduceSum(x, self.computed, keepdims=1, noop_with_empty_axes=int(self.noop))

    def product(self, x: Value) -> Value:
        """The product of a tensor over these axes, which stay."""
        axes = self.computed if self.computed is not None else self.constant or None
        noop = 1 if self.noop else None
        return op.ReduceProd(x, axes=axes, keepdims=1, noop_with_empty_axes=noop)

    def restored(self, reduced: Value) -> Value:
        """A reduced tensor with these axes again, of length one; broadcasting adds leading ones."""
        if self.computed is not None:
            return reshape_exactly(reduced, shape_of(self.sum(self.x)))
        if self.constant == list(range(len(self.constant))):
            return reduced
        return reduced.unsqueeze(*self.constant)

    def share(self, reduced: Value) -> Value | float:
        """One over the number of elements that every element of a reduced tensor is made of."""
        if self.computed is None:
            return share_of(self.x, self.constant)
        return share_of(self.x) / share_of(reduced)


Formula = Callable[[Value, Value, Value, Axes], Value]


def reduction(op_type: str) -> Callable[[Formula], Formula]:
    """Register the rule of a reduction, given by a formula of `g`, `y`, `x` and the axes."""

    def register(formula: Formula) -> Formula:
        def rule(
            g: Value,
            y: Value,
            x: Value,
            axes: Value | None,
            *,
            keepdims: bool,
            noop_with_empty_axes: bool,
        ) -> tuple[Value, None]:
            found = Axes.of(x, axes, noop_with_empty_axes)
            if not keepdims:
                g, y = found.restored(g), found.restored(y)
            return formula(g, y, x, found), None

        rule.__doc__ = formula.__doc__
        vjp(op_type)(rule)
        return formula

    return register


@reduction("ReduceSum")
def reduce_sum(g: Value, y: Value, x: Value, axes: Axes) -> Value:
    """y = sum(x)        dx = g"""
    return expand_like(g, x)


@reduction("ReduceMean")
def reduce_mean(g: Value, y: Value, x: Value, axes: Axes) -> Value:
    """y = sum(x) / n        dx = g / n"""
    return expand_like(g * axes.share(y), x)


@reduction("ReduceMax")
def reduce_max(g: Value, y: Value, x: Value, axes: Axes) -> Value:
    """y = max(x)        dx = g where x = y, shared evenly by all of which it is true

    As torch.amax.
    """
    return _shared(g, y, x, axes)


@reduction("ReduceMin")
def reduce_min(g: Value, y: Value, x: Value, axes: Axes) -> Value:
    """y = min(x)        dx = g where x = y, shared evenly by all of which it is true

    As torch.amin.
    """
    return _shared(g, y, x, axes)


def _shared(g: Value, y: Value, x: Value, axes: Axes) -> Value:
    attained = equal(x, y)
    return where(attained, g / axes.sum(attained.cast(x.elem_type)), 0)


@reduction("ReduceProd")
def reduce_prod(g: Value, y: Value, x: Value, axes: Axes) -> Value:
    """y = product of x        dx = g times the product of all others

    Where some x are zero, the product of all zeros is their sum if there is one of them, and the
    product of all but one of them is the rest of that sum if there are two. Written so, it is right
    there, and so is its own derivative.
    """
    zero = equal(x, 0)
    nonzero, zeros = where(zero, 1, x), where(zero, x, 0)
    count, total = axes.sum(zero.cast(x.elem_type)), axes.sum(zeros)
    all_zeros = where(equal(count, 0), 1, where(equal(count, 1), total, 0))
    other_zeros = where(equal(count, 1), 1, where(equal(count, 2), total - zeros, 0))
    return g * axes.product(nonzero) * where(zero, other_zeros, all_zeros / nonzero)


@reduction("ReduceL1")
def reduce_l1(g: Value, y: Value, x: Value, axes: Axes) -> Value:
    """y = sum(|x|)        dx = g sign(x)        (0 at 0)"""
    return g * sign(x)


@reduction("ReduceL2")
def reduce_l2(g: Value, y: Value, x: Value, axes: Axes) -> Value:
    """y = sqrt(sum(x^2))        dx = g x / y        (0 where y = 0, as torch.linalg.vector_norm)"""
    return g / where(y > 0, y, 1) * x


@reduction("ReduceSumSquare")
def reduce_sum_square(g: Value, y: Value, x: Value, axes: Axes) -> Value:
    """y = sum(x^2)        dx = 2 g x"""
    return 2 * g * x


@reduction("ReduceLogSum")
def reduce_log_sum(g: Value, y: Value, x: Value, axes: Axes) -> Value:
    """y = ln(sum(x))        dx = g e^-y"""
    return expand_like(g * (-y).exp(), x)


@reduction("ReduceLogSumExp")
def reduce_log_sum_exp(g: Value, y: Value, x: Value, axes: Axes) -> Value:
    """y = ln(sum(e^x))        dx = g e^(x - y)        (0 where all x are -inf)"""
    return g * (x - where(y > -math.inf, y, 0)).exp()
