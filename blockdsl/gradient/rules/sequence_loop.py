"""The gradient of a `Loop` that carries sequences, or reads them.

A sequence cannot be stacked, so what a step began with is not kept: where the gradient of a step
needs the elements of a carried sequence, the steps before it are run once more. Appending needs
none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, TensorProto, TypeProto

from blockdsl.gradient.engine import pull_back
from blockdsl.gradient.replay import Draws, replayed
from blockdsl.gradient.sequences import holds_floats, read, written
from blockdsl.graph import activate, current, op
from blockdsl.graph.control import carried_type, close, repeat
from blockdsl.graph.tensor import TensorType
from blockdsl.graph.value import Value


class SequenceLoop:
    """A loop whose steps are taken back one by one.

    Args:
        m: The most steps there are.
        cond: Whether there is a first step.
        initial: What is carried, at the start.
        final: What is carried, at the end.
        body: The body.
        draws: What the body drew, stacked.
    """

    def __init__(
        self,
        m: Value | None,
        cond: Value,
        initial: Sequence[Value],
        final: Sequence[Value],
        body: GraphProto,
        draws: Draws,
    ) -> None:
        self.m, self.cond, self.initial, self.final = m, cond, initial, final
        self.body, self.draws = body, draws
        graph = current()
        self.tensors = [i for i, v in enumerate(initial) if graph.is_tensor(v)]
        self.floating = [i for i, v in enumerate(initial) if _is_float(v)]

    def gradient(
        self, ends: Mapping[int, Any], stacked: Mapping[int, Value], captured: Sequence[str]
    ) -> tuple[dict[int, Any], dict[str, Any]]:
        """The cotangents of what is carried at the start, by index, and of what is captured."""
        outer = [current().value(name) for name in captured]
        number, *kept = self._run(self.m, self.cond, keep=True)[len(self.initial) :]
        trips = op.Shape(number).squeeze(0)
        going = current().add_constant(np.array(True))

        def step(count: Value, carried: list[Value]) -> list[Value]:
            at = trips - 1 - count
            states = self._states_before(at, kept)
            draws = {name: op.Gather(draw, at, axis=0) for name, draw in self.draws.items()}
            outputs = replayed(current(), self.body, [at, going, *states], draws)[1:]
            seeds: dict[str, Any] = {}
            pairs = [
                *((outputs[i], read(d)) for i, d in zip(self.floating, carried, strict=False)),
                *((outputs[i], op.Gather(d, at, axis=0)) for i, d in stacked.items()),
            ]
            for output, cotangent in pairs:
                seeds[output] = seeds[output] + cotangent if output in seeds else cotangent
            own = [states[i] for i in self.floating]
            found = pull_back(current(), seeds, [*own, *captured])
            sums = [
                read(old) + new
                for old, new in zip(carried[len(own) :], found[len(own) :], strict=True)
            ]
            return [
                written(d, v)
                for d, v in zip([*found[: len(own)], *sums], [*own, *outer], strict=True)
            ]

        start = [written(ends.get(i), self.final[i]) for i in self.floating]
        start += [written(None, value) for value in outer]
        results = [read(value) for value in repeat(step, start, trips)]
        first = len(self.floating)
        return (
            dict(zip(self.floating, results[:first], strict=True)),
            dict(zip(captured, results[first:], strict=True)),
        )

    def _states_before(self, at: Value, kept: Sequence[Value]) -> list[Value]:
        """What a step began with: tensors were kept, sequences are made again."""
        states = {i: op.Gather(x, at, axis=0) for i, x in zip(self.tensors, kept, strict=True)}
        if len(states) < len(self.initial):
            again = self._run(at, current().add_constant(np.array(True)))
            states = {**dict(enumerate(again)), **states}
        return [states[i] for i in range(len(self.initial))]

    def _run(self, m: Value | None, cond: Value, keep: bool = False) -> list[Value]:
        """The loop run again, up to a step; it may keep the tensors that every step begins with."""
        with current().body("steps") as child, activate(child):
            number = child.add_body_input("step", TensorType(TensorProto.INT64, ()).proto())
            going = child.add_body_input("going", TensorType(TensorProto.BOOL, ()).proto())
            states = [
                child.add_body_input("state", self._type(i)) for i in range(len(self.initial))
            ]
            draws = {name: op.Gather(draw, number, axis=0) for name, draw in self.draws.items()}
            outputs = replayed(child, self.body, [number, going, *states], draws)
            made = outputs[: 1 + len(states)]
            close(child, [*made, number, *(states[i] for i in self.tensors)] if keep else made)
        count = len(child.proto.graph.output) - 1
        return list(op.Loop(m, cond, *self.initial, body=child.proto.graph, outputs=count))

    def _type(self, i: int) -> TypeProto:
        """The type of a state: of a sequence more may be known at the end than at the start."""
        return carried_type(self.initial[i] if i in self.tensors else self.final[i])


def _is_float(value: Value) -> bool:
    graph = value.graph
    return value.type.is_float if graph.is_tensor(value) else holds_floats(graph, value)
