"""Weights that an exporter computed from the module's parameters, and integer weights."""

from __future__ import annotations

import re
from collections.abc import Iterator

from blockdsl.artifacts.exporter import Call
from blockdsl.artifacts.inspection.finding import Finding
from blockdsl.artifacts.inspection.subject import Reader, Subject
from blockdsl.artifacts.roles import INTEGER
from blockdsl.artifacts.tensor_names import is_anonymous

_MOVES = re.compile(
    r"(clone|view|alias|_?to_copy|detach|lift_fresh_copy|contiguous|permute|transpose|t|unsqueeze|"
    r"squeeze|reshape|_unsafe_view)(_\d+)?"
)
"""Calls that leave no node where they change nothing."""

_INTEGER_OPERATORS = frozenset(
    {"ConvInteger", "DynamicQuantizeLinear", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul"}
    | {"MatMulInteger", "MatMulIntegerToFloat", "QLinearConv", "QLinearMatMul"}
)


def computed_weights(subject: Subject) -> Iterator[Finding]:
    """Yield a finding on parameters from which the exporter computed others, once and for all."""
    lost = subject.exporter.lost
    tensors = tuple(_computed(subject))
    if lost and _is_call_lost(subject):
        shown = ", ".join(map(repr, lost[:4])) + (f" and {len(lost) - 4} more" if lost[4:] else "")
        yield Finding(
            "weights computed by the exporter",
            f"The model does not have the parameters {shown} of the module: the exporter computed "
            f"others from them, or merged the layers that read them with equal ones.",
            "Pass optimize=False to torch.onnx.export.",
            tensors,
            changes_training=True,
        )
    elif subject.exporter.is_torchscript and tensors:
        yield Finding(
            "weights computed by the exporter",
            f"The exporter computed {', '.join(map(repr, tensors[:4]))} from other parameters, "
            f"those of a weight normalisation say, which are not trained themselves.",
            "Export with do_constant_folding=False and training=torch.onnx.TrainingMode.TRAINING.",
            tensors,
            changes_training=True,
        )


def dropped_biases(subject: Subject) -> Iterator[Finding]:
    """Yield a finding on biases that the exporter left out because they were zero."""
    read = {reader.parameter for readers in subject.readers.values() for reader in readers}
    nodes: list[str] = []
    names: list[str] = []
    for node, call in subject.exporter.calls:
        if "RemoveOptionalBias" in call.rewrite and "FuseBatchNorm" not in call.rewrite:
            lost = set(subject.exporter.targets(call)) - read - set(subject.initializers)
            nodes += [node.name] if lost else []
            names += sorted(lost - set(names))
    if names:
        yield Finding(
            "dropped biases",
            f"The exporter left out {len(names)} biases that were zero, {names[0]!r} for one: they "
            f"are not trained.",
            "Pass optimize=False to torch.onnx.export.",
            nodes=tuple(nodes),
            changes_training=True,
        )


def _computed(subject: Subject) -> Iterator[str]:
    """Yield the initializers that are no parameter of the module in another form."""
    exporter = subject.exporter
    for name, readers in subject.readers.items():
        if is_anonymous(name) and name in subject.trained:
            if exporter.has_calls:
                is_matrix = len(subject.initializers[name].dims) > 1
                if is_matrix and not any(exporter.targets(Call(r.node)) for r in readers):
                    yield name
            elif any(_keeps_names(subject, reader) for reader in readers):
                yield name


def _keeps_names(subject: Subject, reader: Reader) -> bool:
    """Whether the older exporter gives a node its weight as the module has it, and by its name.

    It folds BatchNormalization into both the weight and the bias of a convolution.
    """
    node = reader.node
    if reader.slot != 1 or node.op_type not in ("Conv", "ConvTranspose", "Gemm"):
        return False
    if node.op_type == "Gemm":
        return any(a.name == "transB" and a.i for a in node.attribute)
    return len(node.input) < 3 or not is_anonymous(subject.source(node.input[2]))


def _is_call_lost(subject: Subject) -> bool:
    """Whether a call that a remaining one takes its input from is in the model no more."""
    present = {call.name for _, call in subject.exporter.calls}
    present |= {name for node in subject.nodes for name in node.output}
    return any(
        name not in present and not _MOVES.fullmatch(name) and not subject.exporter.is_input(name)
        for _, call in subject.exporter.calls
        if not call.rewrite
        for name in call.arguments
    )


def renamed_weights(subject: Subject) -> Iterator[Finding]:
    """Yield a finding on parameters that have another form and name than in the module."""
    exporter = subject.exporter
    if not (exporter.has_calls or exporter.is_torchscript):
        return
    forms = {}
    for name, readers in subject.readers.items():
        if name in subject.trained and is_anonymous(name):
            origins = [reader.parameter for reader in readers if reader.parameter]
            forms[name] = origins[0] if origins else exporter.module(readers[0].node) or ""
    if forms:
        shown = ", ".join(f"{n!r} (of {o!r})" if o else repr(n) for n, o in list(forms.items())[:4])
        more = f" and {len(forms) - 4} more" if len(forms) > 4 else ""
        option = "optimize=False" if exporter.has_calls else "do_constant_folding=False"
        yield Finding(
            "renamed weights",
            f"The exporter folded parameters, which are trained under names of its own: {shown}"
            f"{more}.",
            f"Pass {option} to torch.onnx.export to have the module's names.",
            tuple(forms),
        )


def integer_weights(subject: Subject) -> Iterator[Finding]:
    """Yield a finding on a quantised model."""
    names = tuple(name for name, role in subject.roles.items() if role.kind == INTEGER)
    nodes = [node for node in subject.nodes if node.op_type in _INTEGER_OPERATORS]
    if names or nodes:
        stored = f"{len(names)} weights are stored as integers and are not trained"
        computed = f"{len(nodes)} nodes compute in integers"
        yield Finding(
            "integer weights",
            f"The model is quantised: {stored if names else computed}.",
            "Train the model before it is quantised, and quantise the trained one.",
            names,
            tuple(node.name or node.output[0] for node in nodes),
            changes_training=True,
        )
