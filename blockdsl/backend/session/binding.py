"""A session bound to memory that outlives its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnxruntime as ort

from blockdsl.backend.buffer import Buffer, owned, to_array, wrap
from blockdsl.backend.engine import Array
from blockdsl.backend.in_place import InPlaceCheck
from blockdsl.backend.providers import Device
from blockdsl.backend.reason import reason
from blockdsl.backend.session.load import OpenSession
from blockdsl.backend.values import is_text
from blockdsl.errors import EngineError

Feed: TypeAlias = "Array | ort.OrtValue"


class BoundSession:
    """Runs a session whose state stays in buffers; only feeds and results pass in and out.

    Args:
        opened: The session.
        device: Where the session runs and the buffers lie.
        feeds: The inputs that each run is given.
        results: The outputs that each run returns.
        inputs: The buffers of the other inputs.
        outputs: The buffers of the other outputs.
        in_place: Tells which outputs may go straight to a buffer that is also an input. Without it
            none may: they are copied when the run is over.
    """

    def __init__(
        self,
        opened: OpenSession,
        device: Device,
        feeds: Sequence[str],
        results: Sequence[str],
        inputs: Mapping[str, Buffer],
        outputs: Mapping[str, Buffer] | None = None,
        in_place: InPlaceCheck | None = None,
    ) -> None:
        self._opened = opened
        self._session = opened.session
        self._device = device
        self._feeds = list(feeds)
        self._results = list(results)
        self._inputs = dict(inputs)
        self._outputs = dict(outputs or {})
        # A result that is an input of the model shares its memory: the state's, or the caller's.
        self._shared = {i for i, name in enumerate(results) if name in {*inputs, *feeds}}
        self._late: list[tuple[Buffer, Buffer]] = []
        self._binding = self._session.io_binding()
        # The results come first, so that they lead the list of all outputs.
        for name in self._results:
            self._binding.bind_output(name, "cpu")
        self._bind_inputs()
        sources = {id(buffer): name for name, buffer in self._inputs.items()}
        for name, buffer in self._outputs.items():
            source = sources.get(id(buffer))
            target = buffer
            if source is not None and not (in_place and in_place.allows(source, name)):
                target = Buffer.zeros(buffer.dtype, buffer.shape, device)
                self._late.append((buffer, target))
            self._binding.bind_ortvalue_output(name, target.value)

    def run(self, feeds: Sequence[Feed], *, on_device: bool = False) -> list[Any]:
        """Run once.

        Args:
            feeds: One array or OrtValue per name in `feeds`.
            on_device: Whether the results stay on the session's device.

        Returns:
            One OrtValue per result; an array where it holds strings and strings were fed.

        Raises:
            EngineError: The runtime failed; a buffer may hold the result of a run cut short.
        """
        try:
            if any(map(is_text, feeds)):
                return self._run_unbound(feeds)
            self._run_bound(feeds, on_device)
        except Exception as error:  # the runtime's classes have no common base
            raise EngineError(
                f"ONNX Runtime failed in a step of the {self._opened.what}: {reason(error)}"
            ) from error
        for buffer, result in self._late:
            buffer.copy_from(result)
        values = self._binding.get_outputs_as_ortvaluevector()
        results = [ort.OrtValue(values[index]) for index in range(len(self._results))]
        for index in self._shared:
            results[index] = owned(to_array(results[index]))
        return results

    def _bind_inputs(self) -> None:
        for name, buffer in self._inputs.items():
            self._binding.bind_ortvalue_input(name, buffer.value)

    def _run_bound(self, feeds: Sequence[Feed], on_device: bool) -> None:
        place = (self._device.kind, self._device.index) if on_device else ("cpu", 0)
        alive = [feed if isinstance(feed, ort.OrtValue) else wrap(feed) for feed in feeds]
        for name, value in zip(self._feeds, alive, strict=True):
            self._binding.bind_ortvalue_input(name, value)
        if not self._device.is_host:
            # What a CPU kernel reads is copied to the CPU when it is bound, not when it is read.
            self._bind_inputs()
        # Bound anew each time: the runtime would write over the results it has handed out.
        for name in self._results:
            self._binding.bind_output(name, *place)
        self._session.run_with_iobinding(self._binding)

    def _run_unbound(self, feeds: Sequence[Feed]) -> list[Any]:
        """Python's bindings take no strings: run with copies, for models that are fed text."""
        everything: dict[str, Any] = {name: b.value for name, b in self._inputs.items()}
        everything.update(zip(self._feeds, feeds, strict=True))
        values = self._session.run([*self._results, *self._outputs], everything)
        for buffer, value in zip(self._outputs.values(), values[len(self._results) :], strict=True):
            buffer.write(value)
        results = [np.asarray(value) for value in values[: len(self._results)]]
        return [array if is_text(array) else owned(array) for array in results]
