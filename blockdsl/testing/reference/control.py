"""`Loop` and `Scan`, `Optional` and `SequenceInsert`.

`onnx.reference` joins the scan outputs of a loop along their first axis, where ONNX stacks them
along a new one; it does not run a loop whose condition is left out, nor one of zero iterations with
scan outputs. Of a scan it takes neither directions nor axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper
from onnx.reference.op_run import OpRun

Array = npt.NDArray[Any]


class Loop(OpRun):
    """Iterates while the condition holds, at most M times."""

    op_domain = ""
    body: Any
    _run_body: Any

    def need_context(self) -> bool:
        """The body reads tensors of the graph around it."""
        return True

    def _run(
        self, trips: Any = None, condition: Any = None, *carried: Any, context: Any, **_: Any
    ) -> tuple[Any, ...]:
        body = self.body
        counter, flag, *names = body.input_names
        stacked: list[list[Array]] = [[] for _ in body.output_names[1 + len(carried) :]]
        trip = 0
        while (condition is None or condition) and (trips is None or trip < int(trips.item())):
            given = dict(zip(names, carried, strict=True))
            entry = {counter: np.array(trip, np.int64), flag: np.array(True)}
            condition, *results = self._run_body({**context, **entry, **given})
            carried = tuple(results[: len(carried)])
            for stack, item in zip(stacked, results[len(carried) :], strict=True):
                stack.append(item)
            trip += 1
        outputs = body.proto_.output[1 + len(carried) :]
        return (*carried, *(_stack(s, o) for s, o in zip(stacked, outputs, strict=True)))


class Scan(OpRun):
    """Iterates over slices of the scan inputs."""

    op_domain = ""
    body: Any
    _run_body: Any

    def need_context(self) -> bool:
        """The body reads tensors of the graph around it."""
        return True

    def _run(self, *inputs: Any, context: Any, **attributes: Any) -> Any:
        if self.run_params["opsets"][""] >= 9:
            return self._scan(inputs, context, **attributes)
        # Opset 8: sequence lengths come first, a batch axis stands before all others.
        lengths, *batches = inputs
        flips = attributes.get("directions")
        results = []
        most = batches[-1].shape[1]
        for number, items in enumerate(zip(*batches, strict=True)):
            cut = len(items) - attributes["num_scan_inputs"]
            end = None if lengths is None else lengths[number]
            given = [*items[:cut], *(x[:end] for x in items[cut:])]
            attributes["scan_input_directions"] = flips
            made = self._scan(given, context, **attributes)
            missing = most - len(given[-1])
            tails = [[(0, missing)] + [(0, 0)] * (x.ndim - 1) for x in made[cut:]]
            padded = [np.pad(x, t) for x, t in zip(made[cut:], tails, strict=True)]
            results.append((*made[:cut], *padded))
        return tuple(np.stack(parts) for parts in zip(*results, strict=True))

    def _scan(
        self, inputs: Sequence[Any], context: Any, num_scan_inputs: int, **attributes: Any
    ) -> tuple[Any, ...]:
        body = self.body
        first = len(inputs) - num_scan_inputs
        states = list(inputs[:first])
        axes = _per_item(attributes["scan_input_axes"], num_scan_inputs)
        reverse = _per_item(attributes["scan_input_directions"], num_scan_inputs)
        slices = [
            np.flip(np.moveaxis(x, axis, 0), 0) if flip else np.moveaxis(x, axis, 0)
            for x, axis, flip in zip(inputs[first:], axes, reverse, strict=True)
        ]
        stacked: list[list[Array]] = [[] for _ in body.output_names[first:]]
        for items in zip(*slices, strict=True):
            given = dict(zip(body.input_names, [*states, *items], strict=True))
            results = self._run_body({**context, **given})
            states = results[:first]
            for stack, item in zip(stacked, results[first:], strict=True):
                stack.append(item)
        axes = _per_item(attributes["scan_output_axes"], len(stacked))
        reverse = _per_item(attributes["scan_output_directions"], len(stacked))
        outputs = [
            np.moveaxis(_stack(stack[::-1] if flip else stack, info), 0, axis)
            for stack, info, axis, flip in zip(
                stacked, body.proto_.output[first:], axes, reverse, strict=True
            )
        ]
        return (*states, *outputs)


class Optional(OpRun):
    """That of `onnx.reference` puts its input into a list, which nothing takes out again."""

    op_domain = ""

    def _run(self, x: Any = None, **_: Any) -> tuple[Any]:
        return (x,)


class SequenceInsert(OpRun):
    """That of `onnx.reference` puts at the front what belongs behind the last element."""

    op_domain = ""

    def _run(self, sequence: list[Any], tensor: Any, position: Any = None) -> tuple[list[Any]]:
        at = len(sequence) if position is None else int(np.asarray(position).item())
        made = list(sequence)
        made.insert(at, tensor)
        return (made,)


def _per_item(given: Sequence[int] | None, count: int) -> list[int]:
    return [0] * count if given is None else list(given)


def _stack(items: list[Array], info: Any) -> Array:
    """The items along a new first axis; the declared type says what none of them look like."""
    if items:
        return np.stack(items)
    tensor = info.type.tensor_type
    shape = [d.dim_value for d in tensor.shape.dim]
    elem_type = tensor.elem_type or TensorProto.FLOAT
    return np.zeros([0, *shape], helper.tensor_dtype_to_np_dtype(elem_type))


OPERATORS: list[Any] = [Loop, Optional, Scan, SequenceInsert]
