"""Loops and choices as values: Python functions become the bodies of `Scan` and `If`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import TensorProto, TypeProto

from blockdsl.errors import OpError
from blockdsl.graph.context import activate, current
from blockdsl.graph.model import Graph
from blockdsl.graph.nested import resized
from blockdsl.graph.op import op
from blockdsl.graph.rewriting import Mark
from blockdsl.graph.tensor import TensorType
from blockdsl.graph.value import Operand, Value

_FIRST_SCAN = 9
"""The opset from which on `Scan` has no batches."""

_FIRST_STATELESS = 11
"""The opset from which on a `Loop` may carry nothing."""

_FIRST_OF_SEQUENCES = 13
"""The opset from which on a `Loop` may carry sequences."""

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
    if graph.opset() < _FIRST_SCAN:
        return _looped(step, states, inputs, reverse)
    with graph.body("step") as child, activate(child):
        carried = [child.add_body_input("state", s.type.proto(), s) for s in states]
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


def _looped(
    step: Step, states: Sequence[Value], inputs: Sequence[Value], reverse: bool
) -> tuple[list[Value], list[Value]]:
    """As `scan`, where the opset has none, or one of another form."""
    length = inputs[0].shape[0]
    trips: Operand = length if isinstance(length, int) else op.Shape(inputs[0])[0]

    def backwards(number: Value) -> Value:
        return trips - 1 - number if reverse else number

    def each(number: Value, carried: list[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        return step(carried, [op.Gather(x, backwards(number), axis=0) for x in inputs])

    carried, made = counted(each, states, trips)
    if reverse and made:
        order = counted(lambda number, _: ([], [backwards(number)]), [], trips)[1][0]
        made = [op.Gather(x, order, axis=0) for x in made]
    for value, like in zip(carried, states, strict=True):
        current().annotate(value, like.type)
    for value in made:
        current().annotate(value, TensorType(value.elem_type, (length, *value.shape[1:])))
    return carried, made


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

    def checked(number: Value, carried: list[Value]) -> tuple[Sequence[Value], list[Value]]:
        new_states = step(number, carried)
        for old, new in zip(carried, new_states, strict=True):
            if current().is_tensor(old) and current().is_tensor(new):
                _check_kept(new.type, old.type)
        return new_states, []

    found = counted(checked, states, trips)[0]
    for value, like in zip(found, states, strict=True):
        if current().is_tensor(value) and current().is_tensor(like):
            current().annotate(value, like.type)
    return found


def _check_kept(found: TensorType, like: TensorType) -> None:
    """Check that a state has the shape, as far as it is known, that it began with."""
    if found.shape is None or like.shape is None:
        return
    pairs = zip(found.shape, like.shape, strict=False)
    if len(found.shape) != len(like.shape) or any(
        isinstance(d, int) and isinstance(e, int) and d != e for d, e in pairs
    ):
        raise OpError(
            f"A step must return its states in the shapes that they begin with: one begins as "
            f"{like} and is returned as {found}."
        )


def counted(
    step: Callable[[Value, list[Value]], tuple[Sequence[Value], Sequence[Value]]],
    states: Sequence[Value],
    trips: Operand,
) -> tuple[list[Value], list[Value]]:
    """As `repeat`, where the steps have outputs as well, which are stacked along axis 0."""
    opset = current().opset()
    if opset < _FIRST_OF_SEQUENCES and not all(map(current().is_tensor, states)):
        raise OpError(
            f"A loop that carries a sequence needs opset {_FIRST_OF_SEQUENCES}, and the model has "
            f"opset {opset}. Make positions and lengths in sequences static, or convert the model "
            f"with onnx.version_converter."
        )
    if not states and opset < _FIRST_STATELESS:
        spare = [op.Identity(np.array(0))]
        return [], counted(lambda number, kept: (kept, step(number, [])[1]), spare, trips)[1]
    with current().body("step") as child, activate(child):
        number = child.add_body_input("number", TensorType(TensorProto.INT64, ()).proto())
        going = child.add_body_input("going", TensorType(TensorProto.BOOL, ()).proto())
        carried = [child.add_body_input("state", carried_type(s), s) for s in states]
        new_states, outputs = step(number, carried)
        close(child, [going, *new_states, *outputs])
    count, made = len(states), len(outputs)
    results = op.Loop(trips, True, *states, body=child.proto.graph, outputs=count + made)
    return list(results[:count]), list(results[count:])


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
    return child.add_body_input(hint, TensorType(x.elem_type, tuple(x.shape[1:])).proto(), x)


def close(child: Graph, outputs: Sequence[Value]) -> None:
    """Make these the outputs of a body: each written by a node of the body, and only once."""
    seen: set[str] = set()
    own = []
    for value in outputs:
        inside = any(value in node.output for node in child.proto.graph.node)
        own.append(value if inside and value not in seen else op.Identity(value))
        seen.add(value)
    child.set_outputs(own)
    child.prune(Mark(), own)
