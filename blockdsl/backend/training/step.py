"""One forward (and backward) pass of a C module: checked feeds in, OrtValues out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from blockdsl.backend.buffer import is_native, owned, to_array, wrap
from blockdsl.backend.feeds import InputSpec, check_feeds
from blockdsl.backend.providers import load_runtime
from blockdsl.backend.training.native import native, reporting
from blockdsl.backend.values import as_array, is_text
from blockdsl.graph.layout import ACCUMULATED


class Pass:
    """The pass of a training model or of an eval model.

    Args:
        what: What to call the model in an error message.
        specs: The inputs that are fed.
        outputs: All outputs that the C module returns.
        run: The C method that takes arrays.
        run_values: The C method that takes OrtValues.
        parameters: The names of the parameters: like an input, one that is an output is copied.
    """

    def __init__(
        self,
        what: str,
        specs: Sequence[InputSpec],
        outputs: Sequence[str],
        run: Callable[..., None],
        run_values: Callable[..., None],
        parameters: Collection[str] = (),
    ) -> None:
        self._what = what
        self._specs = specs
        # Running statistics are accumulated in the graph and returned for no other reason.
        self._kept = [i for i, name in enumerate(outputs) if not name.endswith(ACCUMULATED)]
        self.input_names = [spec.name for spec in specs]
        shared = {*self.input_names, *parameters}
        self._copied = {i for i in self._kept if outputs[i] in shared}
        self._run = run
        self._run_values = run_values
        self.output_names = [outputs[i] for i in self._kept]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the model; give one OrtValue per output."""
        feeds = check_feeds(self._specs, inputs, self._what)
        fetches = native().OrtValueVector()
        with reporting(f"A step of the {self._what}"):
            if all(isinstance(feed, np.ndarray) and is_native(feed.dtype) for feed in feeds):
                self._run(feeds, fetches)
            elif any(map(is_text, feeds)):
                # No OrtValue can be made of strings: then all must be arrays.
                self._run([as_array(feed) for feed in feeds], fetches)
            else:
                # One OrtValue among the inputs, or a type that NumPy has not, and all must be
                # OrtValues. They borrow the arrays' memory, so `values` keeps them until the end.
                values = [wrap(f) if isinstance(f, np.ndarray) else f for f in feeds]
                vector = native().OrtValueVector()
                for value in values:
                    vector.push_back(value._ortvalue)
                self._run_values(vector, fetches)
        python = load_runtime().OrtValue
        results = {i: python(fetches[i]) for i in self._kept}
        results.update((i, owned(to_array(results[i]))) for i in self._copied)
        return list(results.values())
