"""Initializers of a model taken apart or made one, as the exported module has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from blockdsl.artifacts.inspection.merged_weights import Merged, find_merged, split
from blockdsl.artifacts.inspection.subject import Subject
from blockdsl.artifacts.inspection.tied_weights import Untied, find_untied, is_transposed
from blockdsl.artifacts.tensor_names import is_anonymous
from blockdsl.errors import ArtifactError, ArtifactTypeError, UnknownNameError, near

Weights = dict[str, np.ndarray]
"""The values of initializers that lie in other files, by their names."""


def separate_weights(model: ModelProto, weights: Weights, wanted: Any) -> None:
    """Give every module that reads a merged initializer one of its own, in place.

    Args:
        model: The model.
        weights: The values of initializers that lie in other files; copies are added.
        wanted: True for what `inspect` finds, or names and globs of initializers or parts of them.

    Raises:
        ArtifactTypeError: `wanted` is something else.
        UnknownNameError: A name matches no initializer.
        ArtifactError: An initializer that is named has no two readers that can be told apart.
    """
    if wanted is False or wanted is None:
        return
    subject = Subject(model, weights)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    taken = _tensor_names(subject)
    for merged in _merged(subject, wanted):
        for label, readers in list(merged.parts.items())[1:]:
            name = _copy_name(merged.name, label)
            if name not in subject.aliases:
                name = _unused(name, taken)
            copy = TensorProto()
            copy.CopyFrom(tensors[merged.name])
            copy.name = name
            model.graph.initializer.append(copy)
            if merged.name in weights:
                weights[name] = weights[merged.name]
            taken.add(name)
            for reader in readers:
                reader.node.input[reader.slot] = name
    _remove_aliases(model, subject)


def tie_weights(model: ModelProto, weights: Weights, wanted: Any) -> None:
    """Make pairs of initializers with equal values one, in place.

    Args:
        model: The model.
        weights: The values of initializers that lie in other files; copies are removed.
        wanted: True for what `inspect` finds, or pairs of names. The first of a pair stays, and the
            second is computed from it, by a Transpose if need be.

    Raises:
        ArtifactTypeError: `wanted` is something else.
        UnknownNameError: A name is not that of an initializer.
        ArtifactError: The two differ in more than a transposition.
    """
    if wanted is False or wanted is None:
        return
    subject = Subject(model, weights)
    stands_for: dict[str, str] = {}
    for pair in _untied(subject, wanted):
        kept = pair.kept
        while kept in stands_for:
            kept = stands_for[kept]
        if pair.copy in stands_for or kept == pair.copy:
            continue
        model.graph.node.insert(0, _link(subject, kept, pair.copy))
        stands_for[pair.copy] = kept
        weights.pop(pair.copy, None)
    _remove_initializers(model, stands_for)


def _merged(subject: Subject, wanted: Any) -> Iterator[Merged]:
    """Yield the initializers that are to be taken apart."""
    if wanted is True:
        yield from find_merged(subject)
        return
    patterns = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(patterns, list | tuple) or not all(isinstance(p, str) for p in patterns):
        raise ArtifactTypeError(
            f"separate_merged must be True or a list of names and globs, got {wanted!r}."
        )
    every = {name: split(subject, name) for name in subject.readers}
    chosen: dict[str, Merged] = {}
    for pattern in patterns:
        matching = [
            name
            for name, parts in every.items()
            if any(pattern == n or fnmatchcase(n, pattern) for n in (name, *parts))
        ]
        if not matching:
            raise UnknownNameError(
                f"separate_merged: no float initializer is named {pattern!r}. "
                f"{near(pattern, every)}"
            )
        if pattern in matching and len(every[pattern]) < 2:
            raise ArtifactError(
                f"separate_merged: {pattern!r} is read by one module alone, as far as the names "
                f"and the metadata of its nodes tell: there is nothing to separate."
            )
        chosen |= {n: Merged(n, every[n]) for n in matching if len(every[n]) > 1}
    yield from chosen.values()


def _copy_name(name: str, label: str) -> str:
    """Return the name of a copy: the module's, and for a folded tensor with its path alone."""
    if not is_anonymous(name) or "/" in label:
        return label if label != "constant" else f"constant/{name}"
    module = label.rpartition(".")[0]
    return f"{module}/{name}" if module else f"{label}/{name}"


def _remove_aliases(model: ModelProto, subject: Subject) -> None:
    """Remove the Identity nodes whose output is an initializer now, or that nothing reads."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    for i in reversed(range(len(model.graph.node))):
        output = model.graph.node[i].output
        if output and output[0] in subject.aliases and output[0] in initializers:
            del model.graph.node[i]


def _untied(subject: Subject, wanted: Any) -> Iterator[Untied]:
    """Yield the pairs that are to be made one."""
    if wanted is True:
        yield from find_untied(subject)
        return
    for pair in _pairs(wanted):
        for name in pair:
            if name not in subject.initializers:
                raise UnknownNameError(
                    f"tie: {name!r} is not a float initializer of the model. "
                    f"{near(name, subject.initializers)}"
                )
        yield Untied(*pair)


def _pairs(wanted: Any) -> Sequence[tuple[str, str]]:
    pairs = list(wanted) if isinstance(wanted, list | tuple) else None
    if pairs is not None and len(pairs) == 2 and all(isinstance(name, str) for name in pairs):
        pairs = [tuple(pairs)]
    if pairs is None or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(n, str) for n in pair)
        for pair in pairs
    ):
        raise ArtifactTypeError(
            f"tie must be True or a list of pairs of names, [('emb.weight', 'head.weight')] for "
            f"one; got {wanted!r}."
        )
    return [(pair[0], pair[1]) for pair in pairs]


def _link(subject: Subject, kept: str, copy: str) -> NodeProto:
    """Return the node that computes the second of two tied initializers from the first."""
    one, other = subject.array(kept), subject.array(copy)
    transposed = None if one is None or other is None else is_transposed(one, other)
    if transposed is None:
        shapes = [tuple(subject.initializers[name].dims) for name in (kept, copy)]
        raise ArtifactError(
            f"tie: {kept!r} of shape {shapes[0]} and {copy!r} of shape {shapes[1]} are not equal, "
            f"nor is one the transpose of the other. Only equal weights can be made one without a "
            f"change of the model."
        )
    if transposed:
        return helper.make_node("Transpose", [kept], [copy], name=f"{copy}/tie", perm=[1, 0])
    return helper.make_node("Identity", [kept], [copy], name=f"{copy}/tie")


def _remove_initializers(model: ModelProto, names: Any) -> None:
    for values in (model.graph.initializer, model.graph.input):
        for i in reversed(range(len(values))):
            if values[i].name in names:
                del values[i]


def _tensor_names(subject: Subject) -> set[str]:
    graph = subject.model.graph
    names = {value.name for value in (*graph.input, *graph.initializer)}
    return names | {name for node in subject.nodes for name in node.output}


def _unused(name: str, taken: set[str]) -> str:
    unused, count = name, 0
    while unused in taken:
        count += 1
        unused = f"{name}_{count}"
    return unused
