"""Nodes that draw at random."""

from __future__ import annotations

from onnx import NodeProto

_GENERATORS = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        *(f"Random{n}{k}" for n in ("Normal", "Uniform") for k in ("", "Like")),
    }
)


def is_random(node: NodeProto) -> bool:
    """Whether a node draws at random; dropout does where it may train."""
    if node.domain not in ("", "ai.onnx"):  # exporters name functions after operators
        return False
    return node.op_type in _GENERATORS or (node.op_type == "Dropout" and any(node.input[2:]))


def draws_by_itself(node: NodeProto) -> bool:
    """Whether a node draws from a generator of its own, which nothing sets back in a session."""
    seeded = any(attribute.name == "seed" for attribute in node.attribute)
    return is_random(node) and (node.op_type != "Dropout" or seeded)


def share_generator(node: NodeProto) -> None:
    """Let a node draw from the generator of the process if its operator can."""
    if node.op_type == "Dropout" and is_random(node):
        kept = [attribute for attribute in node.attribute if attribute.name != "seed"]
        del node.attribute[:]
        node.attribute.extend(kept)
