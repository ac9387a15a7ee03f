"""Loops and choices as values: Python functions become the bodies of `Scan` and `If`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx import TensorProto, TypeProto

from blockdsl.errors import OpError
from blockdsl.graph.context import activate, current
from blockdsl.graph.model import Graph
from blockdsl.graph.nested import resized
from blockdsl.graph.op import op
from blockdsl.graph.tensor import TensorType
from blockdsl.graph.value import Value

_FIRST_SCAN = 9
"""The opset from which on `Scan` has no batches."""

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

    Raises:
        OpError: The model's opset is below 9, and the number of steps is not known.
    """
    graph = current()
    if graph.opset() < _FIRST_SCAN:
        return _unrolled(step, states, inputs, reverse)
    with graph.body("step") as child, activate(child):
        carried = [child.add_body_input("state", s.type.proto()) for s in states]
        slices = [slice_of(child, "slice", x) for x in inputs]
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


def _unrolled(
    step: Step, states: Sequence[Value], inputs: Sequence[Value], reverse: bool
) -> tuple[list[Value], list[Value]]:
    """One step after the other, where the opset has no `Scan`, or one of another form."""
    count = inputs[0].shape[0]
    if not isinstance(count, int):
        raise OpError(
            f"A loop over {str(inputs[0])!r}, of {inputs[0].type}, needs opset {_FIRST_SCAN}, and "
            f"the model has opset {current().opset()}. Make the number of steps static, or convert "
            f"the model with onnx.version_converter."
        )
    carried, made = list(states), []
    for i in reversed(range(count)) if reverse else range(count):
        new, outputs = step(carried, [x[i] for x in inputs])
        carried = list(new)
        made.append([output.unsqueeze(0) for output in outputs])
    rows = zip(*(made[::-1] if reverse else made), strict=True)
    return carried, [op.Concat(*row, axis=0) for row in rows]


def repeat(
    step: Callable[[Value, list[Value]], Sequence[Value]], states: Sequence[Value], trips: Value
) -> list[Value]:
    """Run a step a number of times that is computed.

    Args:
        step: What one step computes of its number and the states. It may use tensors from outside.
        states: What is carried from step to step, at the start: tensors that keep their shapes, and
            sequences.
        trips: How many steps there are: an int64 scalar.

    Returns:
        The states after the last step.
    """
    graph = current()
    with graph.body("step") as child, activate(child):
        number = child.add_body_input("number", TensorType(TensorProto.INT64, ()).proto())
        going = child.add_body_input("going", TensorType(TensorProto.BOOL, ()).proto())
        carried = [child.add_body_input("state", carried_type(s)) for s in states]
        close(child, [going, *step(number, carried)])
    return list(op.Loop(trips, True, *states, body=child.proto.graph, outputs=len(states)))


def carried_type(state: Value) -> TypeProto:
    """The type of a state in the body of a loop: a sequence may hold tensors of other sizes."""
    proto = state.graph.type_proto(state)
    return (resized(proto) if proto.HasField("sequence_type") else None) or proto


def either(condition: Value, then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
    """One of two tensors of the same type, of which only the one that is wanted is computed.

    Args:
        condition: A boolean scalar.
        then: Makes the result if the condition holds. It may use tensors from outside.
        otherwise: Makes the result if it does not.
    """
    return choose(condition, lambda: [then()], lambda: [otherwise()])[0]


def choose(
    condition: Value,
    then: Callable[[], Sequence[Value]],
    otherwise: Callable[[], Sequence[Value]],
) -> list[Value]:
    """As `either`, for several tensors."""
    bodies = {}
    for name, branch in (("then_branch", then), ("else_branch", otherwise)):
        with current().body(name) as child, activate(child):
            close(child, branch())
        bodies[name] = child.proto.graph
    count = len(bodies["then_branch"].output)
    return list(op.If(condition, **bodies, outputs=count))


def slice_of(child: Graph, hint: str, x: Value) -> Value:
    """An input of a body that stands for the slices of a tensor along its first axis."""
    return child.add_body_input(hint, TensorType(x.elem_type, tuple(x.shape[1:])).proto())


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
