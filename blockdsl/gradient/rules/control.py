"""Rules of If, Loop and Scan.

Their bodies are run again in the gradient, and what runs again is differentiated by the engine. A
loop is first run again to keep the states before every step; its gradient is a `Scan` over these,
the last one first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto

from blockdsl.errors import GradientError
from blockdsl.gradient.engine import pull_back
from blockdsl.gradient.registry import vjp
from blockdsl.gradient.replay import Draws, replayed
from blockdsl.gradient.rules.sequence_loop import SequenceLoop
from blockdsl.gradient.sequences import holds_floats, read, written
from blockdsl.graph import activate, current, op
from blockdsl.graph.control import choose, close, counted, scan
from blockdsl.graph.shapes import permuted, zeros_like
from blockdsl.graph.value import Value
from blockdsl.graph.walk import reads

Captured = Mapping[str, Value]
"""The cotangents of tensors that bodies read of the scope around them."""


@vjp("If")
def if_(
    g: Any,
    y: Any,
    cond: Value,
    *,
    then_branch: GraphProto,
    else_branch: GraphProto,
    wanted: frozenset[str],
) -> tuple[None, Captured]:
    """y = then(...) if cond else else(...)        the gradient of the branch that was taken"""
    captured = _captured([then_branch, else_branch], wanted)
    if not captured:
        return None, {}
    bodies = {}
    for name, branch in (("then_branch", then_branch), ("else_branch", else_branch)):
        with current().body(name) as child, activate(child):
            outputs = replayed(child, branch, [], y.drawn(branch))
            seeds: dict[str, Value] = {o: g[i] for i, o in enumerate(outputs) if g.flows(i)}
            found = zip(pull_back(child, seeds, captured), captured, strict=True)
            close(child, [written(d, current().value(name)) for d, name in found])
        bodies[name] = child.proto.graph
    results = map(read, op.If(cond, **bodies, outputs=len(captured)))
    return None, dict(zip(captured, results, strict=True))


@vjp("Scan")
def scan_(
    g: Any,
    y: Any,
    *initial_state_and_scan_inputs: Value,
    body: GraphProto,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None,
    scan_input_directions: list[int] | None,
    scan_output_axes: list[int] | None,
    scan_output_directions: list[int] | None,
    wanted: frozenset[str],
) -> tuple[Any, ...]:
    """s', o = body(s, x) for every slice x        backwards through the slices, last one first"""
    count = len(initial_state_and_scan_inputs) - num_scan_inputs
    states = initial_state_and_scan_inputs[:count]
    given = initial_state_and_scan_inputs[count:]
    in_axes = scan_input_axes or [0] * len(given)
    in_flips = scan_input_directions or [0] * len(given)
    inputs = [_forward(x, a, f) for x, a, f in zip(given, in_axes, in_flips, strict=True)]
    made = len(body.output) - count
    out_axes = scan_output_axes or [0] * made
    out_flips = scan_output_directions or [0] * made
    outputs = {
        count + i: _forward(g[count + i], out_axes[i], out_flips[i])
        for i in range(made)
        if g.flows(count + i)
    }
    draws, captured = y.drawn(body), _captured([body], wanted)
    ends = [g[i] for i in range(count)]
    if all(map(current().is_tensor, captured)):

        def keep(carried: list[Value], slices: list[Value]) -> Any:
            kept = dict(zip(draws, slices[num_scan_inputs:], strict=True))
            again = replayed(current(), body, [*carried, *slices[:num_scan_inputs]], kept)
            return again[:count], carried

        saved = scan(keep, states, [*inputs, *draws.values()])[1] if count else []
        dstates, dinputs, dcaptured = _backwards(
            body, [*saved, *inputs], count, ends, outputs, captured, draws
        )
    else:
        dstates, dinputs, dcaptured = _through_loop(
            body, states, inputs, ends, outputs, captured, draws
        )
    back = [
        None if d is None else _restored(d, x, a, f)
        for d, x, a, f in zip(dinputs, given, in_axes, in_flips, strict=True)
    ]
    return (*dstates, *back, dcaptured)


@vjp("Loop")
def loop(
    g: Any,
    y: Any,
    m: Value | None,
    cond: Value | None,
    *v_initial: Value,
    body: GraphProto,
    wanted: frozenset[str],
) -> tuple[Any, ...]:
    """s', o = body(i, s) until told to stop        backwards through the steps, last one first"""
    count = len(v_initial)
    draws, captured = y.drawn(body), _captured([body], wanted)
    cotangents = {i: g[i] for i in range(count, len(body.output) - 1) if g.flows(i)}
    going_on = current().add_constant(np.array(True))
    start = going_on if cond is None else cond
    if not all(current().is_tensor(v) for v in (*v_initial, *captured)):
        steps = SequenceLoop(m, start, v_initial, [y[i] for i in range(count)], body, draws)
        flowing = {i: g[i] for i in range(count) if g.flows(i)}
        found, dsequences = steps.gradient(flowing, cotangents, captured)
        return (None, None, *(found.get(i) for i in range(count)), dsequences)
    with current().body("steps") as child, activate(child):
        number = child.add_input(child.names.unique("step"), TensorProto.INT64, [])
        going = child.add_input(child.names.unique("going"), TensorProto.BOOL, [])
        states = [child.add_body_input("state", v.type.proto()) for v in v_initial]
        kept = {name: op.Gather(draw, number, axis=0) for name, draw in draws.items()}
        outputs = replayed(child, body, [number, going, *states], kept)
        for state, new in zip(states, outputs[1:], strict=False):
            _check_shape(state, new)
        close(child, [*outputs[: count + 1], number, *states])
    results = op.Loop(m, start, *v_initial, body=child.proto.graph, outputs=2 * count + 1)
    saved = list(results[count:])
    ends = [g[i] for i in range(count)]
    dstates, _, dcaptured = _backwards(
        body, saved, count, ends, cotangents, captured, draws, going_on
    )
    return (None, None, *dstates, dcaptured)


def _through_loop(
    body: GraphProto,
    states: Sequence[Value],
    inputs: Sequence[Value],
    dstates: Sequence[Value],
    doutputs: Mapping[int, Value],
    captured: Sequence[str],
    draws: Draws,
) -> tuple[list[Any], list[Any], Captured]:
    """The gradient of a `Scan` whose body reads sequences: that of a `Loop` over the slices.

    Args:
        body: The body.
        states: What it starts from.
        inputs: What it is given slice by slice, along their first axes.
        dstates: The cotangents of the last states.
        doutputs: The cotangents of those stacked outputs that have one, by their index.
        captured: What the body reads of the scope around it.
        draws: What the body drew, stacked.

    Returns:
        The cotangents of the first states, of the slices, and of what is captured.
    """
    count = len(states)
    own = [op.Identity(x) for x in (*states, *inputs)]  # each of its own, if it is given twice

    def step(number: Value, carried: list[Value]) -> tuple[list[Value], list[Value]]:
        slices = [op.Gather(x, number, axis=0) for x in own[count:]]
        kept = {name: op.Gather(draw, number, axis=0) for name, draw in draws.items()}
        outputs = replayed(current(), body, [*carried, *slices], kept)
        return outputs[:count], outputs[count:]

    last, made = counted(step, own[:count], op.Shape(own[-1])[0])
    seeds: dict[str, Value]
    seeds = {s: d for s, d in zip(last, dstates, strict=True) if s.type.is_float}
    seeds |= {made[i - count]: d for i, d in doutputs.items()}
    found = pull_back(current(), seeds, [*own, *captured])
    first = len(own)
    return found[:count], found[count:first], dict(zip(captured, found[first:], strict=True))


def _backwards(
    body: GraphProto,
    saved: Sequence[Value],
    count: int,
    dstates: Sequence[Value],
    doutputs: Mapping[int, Value],
    captured: Sequence[str],
    draws: Draws,
    going: Value | None = None,
) -> tuple[list[Value | None], list[Value | None], Captured]:
    """The gradient of a loop, from what every step began with.

    Args:
        body: The body.
        saved: The inputs of the body at every step, stacked: states, then slices; for a `Loop` the
            number of the step, then states.
        count: How many states there are.
        dstates: The cotangents of the last states.
        doutputs: The cotangents of those stacked outputs that have one, by their index.
        captured: What the body reads of the scope around it.
        draws: What the body drew, stacked.
        going: The condition of a `Loop`.

    Returns:
        The cotangents of the first states, of the slices, and of what is captured; None for what
        is not floating-point.
    """
    first = 0 if going is None else 1
    states, slices = saved[first : first + count], saved[first + count :]
    floating = [i for i in range(count) if states[i].type.is_float]
    sliced = [i for i, x in enumerate(slices) if x.type.is_float]
    outer = [current().value(name) for name in captured]

    def step(carried: list[Value], given: list[Value]) -> Any:
        graph, rest = current(), given[: len(saved)]
        inputs = rest if going is None else [rest[0], going, *rest[1:]]
        kept = dict(zip(draws, given[len(saved) + len(doutputs) :], strict=True))
        outputs = replayed(graph, body, inputs, kept)[first:]
        seeds: dict[str, Value] = {}
        pairs = [
            *((outputs[i], d) for i, d in zip(floating, carried, strict=False)),
            *((outputs[i], d) for i, d in zip(doutputs, given[len(saved) :], strict=False)),
        ]
        for output, cotangent in pairs:
            seeds[output] = seeds[output] + cotangent if output in seeds else cotangent
        own = rest[first:]
        ends = [*(own[i] for i in floating), *(own[count + i] for i in sliced), *captured]
        found = pull_back(graph, seeds, ends)
        a, b = len(floating), len(floating) + len(sliced)
        sums = [old + new for old, new in zip(carried[a:], found[b:], strict=True)]
        return [*found[:a], *sums], found[a:b]

    start = [*(dstates[i] for i in floating), *(zeros_like(value) for value in outer)]
    if not start and not sliced:
        return [None] * count, [None] * len(slices), {}
    given = [*saved, *doutputs.values(), *draws.values()]
    if going is None:
        ends, stacked = scan(step, start, given, reverse=True)
    else:
        # The kernels of Scan take no tensors of length zero, which a loop without steps leaves.
        some = op.Shape(saved[0]).squeeze(0) > 0
        ends = choose(some, lambda: scan(step, start, given, reverse=True)[0], lambda: start)
        stacked = []
    found_states: list[Value | None] = [None] * count
    found_slices: list[Value | None] = [None] * len(slices)
    for i, value in zip(floating, ends, strict=False):
        found_states[i] = value
    for i, value in zip(sliced, stacked, strict=True):
        found_slices[i] = value
    return found_states, found_slices, dict(zip(captured, ends[len(floating) :], strict=True))


def _captured(bodies: Iterable[GraphProto], wanted: frozenset[str]) -> list[str]:
    """The floating-point tensors that bodies read of the scope around them, in a fixed order."""
    graph = current()
    found: dict[str, None] = {}
    for body in bodies:
        node = NodeProto()
        node.attribute.add().g.CopyFrom(body)
        for name in sorted(reads(node) & wanted, key=str):  # values compare otherwise
            if not graph.is_tensor(name):
                if holds_floats(graph, name):
                    found[name] = None
            elif graph.type_of(name).is_float:
                found[name] = None
    return list(found)


def _check_shape(state: Value, new: Value) -> None:
    old_shape, new_shape = state.type.shape or (), new.type.shape or ()
    for before, after in zip(old_shape, new_shape, strict=False):
        if isinstance(before, int) and isinstance(after, int) and before != after:
            raise GradientError(
                f"The loop carries a tensor that changes its shape from step to step, from "
                f"{state.type} to {new.type}: there is no gradient of that. Return its parts from "
                f"the steps instead: a loop stacks what its body returns after the states."
            )


def _forward(x: Value, axis: int, flip: int) -> Value:
    """A tensor whose first axis is the one that is scanned, in the order of the steps."""
    axis %= x.rank
    x = permuted(x, [axis, *(a for a in range(x.rank) if a != axis)])
    return x[::-1] if flip else x


def _restored(d: Value, like: Value, axis: int, flip: int) -> Value:
    """The inverse of `_forward`."""
    axis %= like.rank
    d = d[::-1] if flip else d
    return permuted(d, [*range(1, axis + 1), 0, *range(axis + 1, like.rank)])
