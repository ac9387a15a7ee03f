"""Parameters that an exporter stored as one because their first values were equal.

Training would update them as one. PyTorch's default exporter merges equal tensors of up to 1024
elements (its optimizer does); the older one merges tensors of any size, unless the module is in
training mode. Layer normalisations, biases of zero and deep copies of a layer begin equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from blockdsl.artifacts.exporter import Call
from blockdsl.artifacts.inspection.finding import Finding
from blockdsl.artifacts.inspection.subject import Reader, Subject
from blockdsl.artifacts.tensor_names import is_anonymous

_DIGITS = re.compile(r"\d+")

_LITERAL = "constant"
"""The name of a part that the module's program has as a number, and not as a tensor."""

Parts = dict[str, list[Reader]]
"""The readers of each tensor of the module, by its name; the first keeps the initializer."""


@dataclass(frozen=True)
class Merged:
    """One initializer that stands for several tensors of the module.

    Attributes:
        name: The initializer.
        parts: The readers of each of these tensors.
    """

    name: str
    parts: Parts


def find_merged(subject: Subject) -> Iterator[Merged]:
    """Yield the initializers that stand for several tensors of the exported module."""
    for name in subject.readers:
        parts = split(subject, name)
        if len(parts) > 1 and subject.is_trained(name) and _is_merged(subject, name, parts):
            yield Merged(name, parts)


def merged_weights(subject: Subject) -> Iterator[Finding]:
    """Yield a finding for every initializer that stands for several parameters."""
    for merged in find_merged(subject):
        names = ", ".join(repr(name) for name in list(merged.parts)[:6])
        rest = len(merged.parts) - 6
        more = f" and {rest} more" if rest > 0 else ""
        yield Finding(
            "merged weights",
            f"{merged.name!r} stands for {len(merged.parts)} tensors that had equal values when "
            f"the model was exported: {names}{more}. They would be trained as one.",
            f"Pass separate_merged=True to generate_artifacts{_export_advice(subject)}.",
            (merged.name,),
            tuple(reader.node.name for part in merged.parts.values() for reader in part),
            changes_training=True,
        )


def split(subject: Subject, name: str) -> Parts:
    """Return the readers of an initializer by the tensors of the module that they read.

    They are told apart by the metadata of the exporter, by the names that Identity nodes give the
    initializer, or by the paths in the names of nodes.
    """
    readers = subject.readers[name]
    if len(readers) < 2:
        return {name: readers}
    if subject.exporter.has_calls:
        return _by_call(subject, name, readers)
    parts: Parts = {}
    for reader in readers:
        label = reader.alias or name
        if is_anonymous(label) or not subject.exporter.is_torchscript:
            module = subject.exporter.module(reader.node)
            label = label if module is None else f"{module}/{name}"
        parts.setdefault(label, []).append(reader)
    return parts


def _is_merged(subject: Subject, name: str, parts: Parts) -> bool:
    """Whether parts of an initializer are tensors that the module has apart."""
    exporter = subject.exporter
    if exporter.has_calls:
        return not exporter.parameters.isdisjoint(parts)
    if exporter.is_torchscript and not is_anonymous(name):
        return True
    if subject.model.producer_name == "blockdsl" or name in parts:
        return False
    # Without names the layers of a stack, which may be copies of one, and numbers that are all
    # equal tell what was merged from what the module shares.
    is_stack = len({_DIGITS.sub("", label) for label in parts}) == 1
    return subject.is_uniform(name) or (exporter.is_torchscript and is_stack)


def _export_advice(subject: Subject) -> str:
    if subject.exporter.has_calls:
        return ", or optimize=False to torch.onnx.export"
    if subject.exporter.is_torchscript:
        return (
            ", or export with training=torch.onnx.TrainingMode.TRAINING and "
            "do_constant_folding=False"
        )
    return ""


def _by_call(subject: Subject, name: str, readers: list[Reader]) -> Parts:
    """Return the readers by parameters and buffers of the module.

    A reader whose call takes a parameter that cannot be told keeps the initializer; so does one
    whose call takes none, unless it has no place for one: it reads a number of equal value.
    """
    known = [reader.parameter for reader in readers if reader.parameter]
    own = name if name in known or not known else known[0]
    parts: Parts = {own: []}
    for reader in readers:
        label = reader.parameter or (own if _takes_a_tensor(subject, reader) else _LITERAL)
        parts.setdefault(label, []).append(reader)
    return {label: part for label, part in parts.items() if part}


def _takes_a_tensor(subject: Subject, reader: Reader) -> bool:
    """Whether the call of a node takes more tensors than the node reads beside constants.

    A node without a call is none of the exporter's, and is taken to do so.
    """
    call = Call(reader.node)
    computed = {name for name in reader.node.input if name and name not in subject.constants}
    return not call.text or len(set(call.arguments)) > len(computed)
