"""Means over data: the loss of the evaluation model, and what else is measured on its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from blockdsl.api import Module
from blockdsl.backend.values import as_array, is_ort_value
from blockdsl.data import Array, Batch, in_order
from blockdsl.errors import DataError, UnknownNameError, near

Metric = Callable[[Mapping[str, Array], Mapping[str, Array]], float]
"""(outputs by name, inputs by name) -> a mean over the batch."""


def evaluate(
    module: Module, data: Iterable[Batch], metrics: Mapping[str, Metric]
) -> dict[str, float]:
    """The mean loss, and other means, over some data; the module is in training mode afterwards.

    Args:
        module: The module, with an evaluation model.
        data: The batches.
        metrics: Functions of a batch's outputs and inputs, both by name.

    Returns:
        "loss" and each metric, every batch weighted by its rows.

    Raises:
        DataError: There is no data, or it does not fit the model; a metric is no function or
            gives no number.
        UnknownNameError: A metric reads an output or input that the evaluation model has not.
    """
    for name, metric in metrics.items():
        if name == "loss" or not callable(metric):
            raise DataError(
                f"The metric {name!r} is {metric!r}: a metric is a function of the outputs and the "
                f"inputs, under a name of its own (the loss is 'loss')."
            )
    measured: dict[str, list[float]] = {"loss": [], **{name: [] for name in metrics}}
    rows = []
    module.eval()
    try:
        names, output_names = module.input_names(), module.output_names()
        for batch in data:
            inputs = in_order(batch, names)
            outputs = outputs_of(module, inputs)
            measured["loss"].append(float(np.mean(outputs[0])))
            given = _Inputs(zip(names, inputs, strict=True))
            put_out = _Outputs(zip(output_names, outputs, strict=True))
            for name, metric in metrics.items():
                measured[name].append(_number(name, metric(put_out, given)))
            rows.append(_rows(inputs[0]))
    finally:
        module.train()
    if not rows:
        raise DataError("There is nothing to evaluate: the data has no batch.")
    return {name: float(np.average(v, weights=rows)) for name, v in measured.items()}


def outputs_of(module: Module, inputs: tuple[Array, ...]) -> list[Array]:
    """What a module gives for a batch, always as a list of arrays."""
    outputs = module(*inputs)
    return [as_array(o) for o in (outputs if isinstance(outputs, tuple) else (outputs,))]


def _number(name: str, value: Any) -> float:
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise DataError(
            f"The metric {name!r} gave {value!r}: a metric is one number, the mean over the batch."
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


def _rows(value: Any) -> int:
    shape = value.shape() if is_ort_value(value) else np.shape(value)
    return int(shape[0]) if len(shape) else 1
