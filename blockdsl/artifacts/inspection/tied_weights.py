"""Weights that are one in the module and two in the model.

An embedding and the output layer that shares its weight are read in two forms, and an exporter
that folds constants stores the transposed form as a tensor of its own. Each would be trained alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import numpy as np

from blockdsl.artifacts.inspection.finding import Finding
from blockdsl.artifacts.inspection.subject import Subject
from blockdsl.artifacts.slots import EMBEDDING, SLOTS, WEIGHT
from blockdsl.artifacts.tensor_names import is_anonymous

KIND = "untied weights"
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class Untied:
    """Two initializers that hold one weight of the module.

    Attributes:
        kept: The one that has the module's name for the weight.
        copy: The other one.
    """

    kept: str
    copy: str


def is_transposed(one: np.ndarray, other: np.ndarray) -> bool | None:
    """Return whether two arrays are equal after transposition; None if they differ.

    Arrays that are equal as they are count as not transposed.
    """
    if one.dtype != other.dtype:
        return None
    if one.shape == other.shape and np.array_equal(one, other):
        return False
    if one.ndim != 2 or one.shape != other.shape[::-1] or not np.array_equal(one[0], other[:, 0]):
        return None
    return True if np.array_equal(one, other.T) else None


def find_untied(subject: Subject) -> Iterator[Untied]:
    """Yield the pairs of initializers that are one weight of the module."""
    copies: set[str] = set()
    for first, second in chain(_by_parameter(subject), _by_values(subject)):
        kept, copy = (second, first) if is_anonymous(first) else (first, second)
        if copy not in copies and kept not in copies and {kept, copy} <= subject.trained:
            copies.add(copy)
            yield Untied(kept, copy)


def untied_weights(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for every weight that the model has twice."""
    for pair in find_untied(subject):
        yield Finding(
            KIND,
            f"{pair.kept!r} and {pair.copy!r} hold the same values: one weight of the module, "
            f"which would be trained as two.",
            f"Pass tie=True, or tie=[({pair.kept!r}, {pair.copy!r})], to generate_artifacts"
            f"{_export_advice(subject)}.",
            (pair.kept, pair.copy),
            changes_training=True,
        )


def _export_advice(subject: Subject) -> str:
    if subject.exporter.has_calls:
        return ", or optimize=False to torch.onnx.export"
    if subject.exporter.is_torchscript:
        return ", or export with do_constant_folding=False"
    return ""


def _by_parameter(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield the equal initializers that nodes read as one parameter of the module."""
    tensors: dict[str, list[str]] = {}
    for name, readers in subject.readers.items():
        for parameter in {reader.parameter for reader in readers} & subject.exporter.parameters:
            tensors.setdefault(parameter, []).append(name)
    for names in tensors.values():
        for first, second in combinations(sorted(names), 2):
            if _are_equal(subject, first, second) is not None:
                yield first, second


def _by_values(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield the matrices that are equal in a way that no two weights are by accident."""
    matrices: dict[tuple[Any, ...], list[str]] = {}
    for name in subject.readers:
        tensor = subject.initializers[name]
        if len(tensor.dims) != 2 or min(tensor.dims) < 2 or not _roles(subject, name):
            continue
        array = subject.array(name)
        if array is not None:
            # Transposition keeps both ends of the diagonal: only tensors that share them compare.
            ends = array[0, 0].tobytes(), array[-1, -1].tobytes()
            key = (tensor.data_type, *sorted(tensor.dims), *ends)
            matrices.setdefault(key, []).append(name)
    for names in matrices.values():
        for first, second in combinations(names, 2):
            if _is_one_weight(subject, first, second):
                yield first, second


def _is_one_weight(subject: Subject, first: str, second: str) -> bool:
    roles = [_roles(subject, name) for name in (first, second)]
    transposed = _are_equal(subject, first, second)
    if transposed is None or subject.is_uniform(first) or _are_copies(subject, first, second):
        return False
    return transposed or (EMBEDDING in roles[0]) != (EMBEDDING in roles[1])


def _are_equal(subject: Subject, first: str, second: str) -> bool | None:
    one, other = subject.array(first), subject.array(second)
    return None if one is None or other is None else is_transposed(one, other)


def _are_copies(subject: Subject, first: str, second: str) -> bool:
    """Whether two layers of a stack read the tensors: copies of one layer begin equal."""
    modules = [
        {subject.exporter.module(reader.node) for reader in subject.readers[name]}
        for name in (first, second)
    ]
    one, other = (_without_numbers(found) for found in modules)
    return one == other and modules[0] != modules[1]


def _without_numbers(modules: Iterable[str | None]) -> set[str]:
    return {_DIGITS.sub("", module or "") for module in modules}


def _roles(subject: Subject, name: str) -> set[str]:
    """Return whether a tensor is read as a weight, as an embedding, or as both."""
    found = set()
    for reader in subject.readers[name]:
        node = reader.node
        slots = (
            {0: WEIGHT}
            if node.op_type == "Transpose"
            else SLOTS.get((node.domain, node.op_type), {})
        )
        found.add(slots.get(reader.slot, ""))
    return found & {WEIGHT, EMBEDDING}
