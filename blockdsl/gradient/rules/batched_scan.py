"""Scan as opset 8 has it: over the elements of a batch, each of a length of its own."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import GraphProto, TensorProto

from blockdsl.functional.padding import length_of, padded
from blockdsl.gradient.composites import composite
from blockdsl.gradient.functions import spliced
from blockdsl.graph import current, op
from blockdsl.graph.control import counted, scan
from blockdsl.graph.value import Value


@composite("Scan", until=8)
def batched_scan(
    sequence_lens: Value | None,
    *initial_state_and_scan_inputs: Value,
    body: GraphProto,
    num_scan_inputs: int,
    directions: Sequence[int] | None = None,
) -> tuple[Value, ...]:
    """s'b, ob = body(sb, xb) for every slice of every xb        behind its last step, ob is zero"""
    count = len(initial_state_and_scan_inputs) - num_scan_inputs
    flips = directions or [0] * num_scan_inputs
    most = length_of(initial_state_and_scan_inputs[count], 1)
    lengths = [] if sequence_lens is None else [sequence_lens.cast(TensorProto.INT64)]

    def element(_: list[Value], rows: list[Value]) -> tuple[list[Value], list[Value]]:
        steps = rows[-1].unsqueeze(0) if lengths else most
        trips = steps if isinstance(steps, int) else steps.squeeze(0)

        def step(number: Value, carried: list[Value]) -> tuple[list[Value], list[Value]]:
            slices = [
                op.Gather(x, trips - 1 - number if flip else number, axis=0)
                for x, flip in zip(rows[count:], flips, strict=False)
            ]
            outputs = spliced(current(), body, [*carried, *slices])
            return outputs[:count], outputs[count:]

        last, made = counted(step, rows[:count], trips)
        return [], [*last, *(padded(x, [0], [0], [most - steps]) for x in made)]

    return tuple(scan(element, [], [*initial_state_and_scan_inputs, *lengths])[1])
