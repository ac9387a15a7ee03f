"""Loops and choices as values: Python functions become the bodies of `Scan` and `If`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blockdsl.graph.context import activate, current
from blockdsl.graph.model import Graph
from blockdsl.graph.op import op
from blockdsl.graph.value import Value

Step = Callable[[list[Value], list[Value]], tuple[Sequence[Value], Sequence[Value]]]
"""(states, inputs of the step) -> (new states, outputs of the step)."""


def scan(
    step: Step, states: Sequence[Value], inputs: Sequence[Value], *, reverse: bool = False
) -> tuple[list[Value], list[Value]]:
    """Run a step over the first axis of some tensors.

    Args:
        step: What one step computes. It may use tensors from outside.
        states: What is carried from step to step, at the start.
        inputs: Tensors whose slices along axis 0 the steps get, one after the other.
        reverse: Whether to begin with the last slice; outputs keep the order of the inputs.

    Returns:
        The states after the last step, and the outputs of all steps, stacked along axis 0.
    """
    graph = current()
    with graph.body("step") as child, activate(child):
        carried = [_input(child, "state", s, s.shape) for s in states]
        slices = [_input(child, "slice", x, x.shape[1:]) for x in inputs]
        new_states, outputs = step(carried, slices)
        close(child, [*new_states, *outputs])
    count, made = len(states), len(outputs)
    results = op.Scan(
        *states,
        *inputs,
        body=child.proto.graph,
        num_scan_inputs=len(inputs),
        scan_input_directions=[int(reverse)] * len(inputs),
        scan_output_directions=[int(reverse)] * made if made else None,
        outputs=count + made,
    )
    return list(results[:count]), list(results[count:])


def either(condition: Value, then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
    """One of two tensors of the same type, of which only the one that is wanted is computed.

    Args:
        condition: A boolean scalar.
        then: Makes the result if the condition holds. It may use tensors from outside.
        otherwise: Makes the result if it does not.
    """
    bodies = {}
    for name, branch in (("then_branch", then), ("else_branch", otherwise)):
        with current().body(name) as child, activate(child):
            close(child, [branch()])
        bodies[name] = child.proto.graph
    return op.If(condition, then_branch=bodies["then_branch"], else_branch=bodies["else_branch"])


def _input(child: Graph, hint: str, like: Value, shape: Sequence[int | str | None]) -> Value:
    return child.add_input(child.names.unique(hint), like.elem_type, shape)


def close(child: Graph, outputs: Sequence[Value]) -> None:
    """Make these the outputs of a body: each written by a node of the body, and only once."""
    seen: set[str] = set()
    own = []
    for value in outputs:
        inside = any(value in node.output for node in child.proto.graph.node)
        own.append(value if inside and value not in seen else op.Identity(value))
        seen.add(value)
    child.set_outputs(own)
    child.prune(0, own)
