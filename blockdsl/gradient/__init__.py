"""Gradients: the rules, the engine that composes them, and models that compute them."""

from blockdsl.gradient import rules as rules
from blockdsl.gradient.engine import build_gradients
from blockdsl.gradient.paths import influences
from blockdsl.gradient.registry import no_gradient, vjp

__all__ = ["build_gradients", "influences", "no_gradient", "vjp"]
