"""Evaluation over a data set: the loss of the evaluation model, and metrics of its outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np

from blockdsl.api import Module
from blockdsl.backend.values import as_array, is_ort_value
from blockdsl.data import Array, Batch, in_order
from blockdsl.errors import DataError, UnknownNameError, near


class AccumulatingMetric(Protocol):
    """A metric that takes a data set batch by batch, where a function would have to hold it all.

    Example:
        >>> class MeanAbsoluteError:
        ...     def reset(self):
        ...         self.total, self.count = 0.0, 0
        ...
        ...     def update(self, outputs, inputs):
        ...         errors = np.abs(outputs["y"] - inputs["target"])
        ...         self.total, self.count = self.total + errors.sum(), self.count + errors.size
        ...
        ...     def compute(self):
        ...         return self.total / self.count
    """

    def reset(self) -> None:
        """Forget everything; called before the first batch."""

    def update(self, outputs: Mapping[str, Array], inputs: Mapping[str, Array]) -> None:
        """Take in a batch: the outputs and inputs of the evaluation model, by name."""

    def compute(self) -> float:
        """Return the metric of all batches since `reset`."""


Metric = Callable[[Mapping[str, Array], Mapping[str, Array]], float] | AccumulatingMetric
"""A function of the outputs and inputs of the whole data set by name, or an accumulating metric."""


def evaluate(
    module: Module, data: Iterable[Batch], metrics: Mapping[str, Metric]
) -> dict[str, float]:
    """Return the loss and metrics over some data; the module is in training mode afterwards.

    Args:
        module: The module, with an evaluation model.
        data: The batches.
        metrics: The metrics by name; see `Trainer.evaluate`.

    Returns:
        "loss", the mean over the batches weighted by their rows, and each metric.

    Raises:
        DataError: There is no data, or it does not fit the model; a metric is no metric or gives
            no number.
        UnknownNameError: A metric reads an output or input that the evaluation model has not.
    """
    _check(metrics)
    accumulating = {name: m for name, m in metrics.items() if _accumulates(m)}
    functions = {name: m for name, m in metrics.items() if callable(m) and name not in accumulating}
    for metric in accumulating.values():
        metric.reset()
    losses, rows = [], []
    kept: list[tuple[_Outputs, _Inputs]] = []
    module.eval()
    try:
        names, output_names = module.input_names(), module.output_names()
        for batch in data:
            fed = in_order(batch, names)
            found = outputs_of(module, fed)
            outputs = _Outputs(zip(output_names, found, strict=True))
            inputs = _Inputs(zip(names, map(_array, fed), strict=True))
            losses.append(float(np.mean(found[0])))
            rows.append(_rows(inputs.values()))
            for metric in accumulating.values():
                metric.update(outputs, inputs)
            if functions:
                kept.append((outputs, inputs))
    finally:
        module.train()
    if not rows:
        raise DataError("There is nothing to evaluate: the data has no batch.")
    all_outputs = _Whole([outputs for outputs, _ in kept], rows)
    all_inputs = _Whole([inputs for _, inputs in kept], rows)
    measured = {"loss": float(np.average(losses, weights=rows))}
    for name in metrics:
        if name in accumulating:
            value: Any = accumulating[name].compute()
        else:
            value = functions[name](all_outputs, all_inputs)
        measured[name] = _number(name, value)
    return measured


def outputs_of(module: Module, inputs: tuple[Array, ...]) -> list[Array]:
    """Return what a module gives for a batch, always as a list of arrays."""
    outputs = module(*inputs)
    return [as_array(o) for o in (outputs if isinstance(outputs, tuple) else (outputs,))]


def _array(fed: Any) -> Array:
    """Return an input of a module as an array: it may be an OrtValue, a list or a tensor, too."""
    return as_array(fed) if is_ort_value(fed) else np.asarray(fed)


def _accumulates(metric: object) -> TypeGuard[AccumulatingMetric]:
    return all(callable(getattr(metric, m, None)) for m in ("reset", "update", "compute"))


def _check(metrics: Mapping[str, Metric]) -> None:
    for name, metric in metrics.items():
        hint = f" Make an instance: {metric.__name__}()." if isinstance(metric, type) else ""
        if name == "loss" or hint or not (callable(metric) or _accumulates(metric)):
            raise DataError(
                f"The metric {name!r} is {metric!r}: a metric is a function of the outputs and the "
                f"inputs, or an object with reset, update and compute, under a name of its own "
                f"(the loss is 'loss').{hint}"
            )


def _number(name: str, value: Any) -> float:
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise DataError(
            f"The metric {name!r} gave {value!r}: a metric is one number, of the whole data set."
        )
    return float(array.reshape(()))


class _Inputs(dict[str, Array]):
    def __missing__(self, name: str) -> Array:
        raise UnknownNameError(
            f"A metric reads the input {name!r}, which the evaluation model does not take. "
            f"{near(name, self)}"
        )


class _Outputs(dict[str, Array]):
    def __missing__(self, name: str) -> Array:
        raise UnknownNameError(
            f"A metric reads the output {name!r}, and the evaluation model puts out "
            f"{', '.join(map(repr, self))}. Generate the artifacts with "
            f"additional_output_names=[{name!r}] (`blockdsl generate --output-name {name}`)."
        )


class _Whole(Mapping[str, Array]):
    """The tensors of all batches, each joined along its first axis when it is first read.

    A scalar, such as the loss, is the mean of the batches', weighted by their rows.
    """

    def __init__(self, batches: Sequence[Mapping[str, Array]], rows: Sequence[int]) -> None:
        self._batches, self._rows = batches, rows
        self._joined: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._joined:
            parts = [batch[name] for batch in self._batches]
            self._joined[name] = self._join(name, parts)
        return self._joined[name]

    def _join(self, name: str, parts: list[Array]) -> Array:
        if not any(part.ndim for part in parts):
            return np.asarray(np.average(parts, axis=0, weights=self._rows))
        try:
            return np.concatenate(parts)
        except ValueError as error:
            shapes = sorted({str(part.shape[1:]) for part in parts})
            raise DataError(
                f"A metric reads {name!r}, whose batches have different shapes beside their rows, "
                f"{' and '.join(shapes)}, so they cannot be joined. Write the metric as an object "
                f"with reset, update and compute, which takes them batch by batch."
            ) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._batches[0])

    def __len__(self) -> int:
        return len(self._batches[0])


def _rows(inputs: Iterable[Array]) -> int:
    """Return how many rows a batch has: the size that most inputs have along their first axis."""
    sizes = Counter(len(array) for array in inputs if array.ndim)
    return sizes.most_common(1)[0][0] if sizes else 1
