"""A look at a forward model for training: what would be trained, and what the exporter changed."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator

import onnx

from blockdsl.artifacts.checks import check_runnable
from blockdsl.artifacts.inspection.evaluation_mode import batch_norms_and_dropouts
from blockdsl.artifacts.inspection.finding import Finding, Report
from blockdsl.artifacts.inspection.folded_weights import (
    computed_weights,
    dropped_biases,
    integer_weights,
    renamed_weights,
)
from blockdsl.artifacts.inspection.merged_weights import merged_weights
from blockdsl.artifacts.inspection.sizes import sizes, wrong_declarations
from blockdsl.artifacts.inspection.subject import Subject
from blockdsl.artifacts.inspection.tied_weights import untied_weights
from blockdsl.artifacts.inspection.trainability import outputs_and_gradients, select_trained
from blockdsl.artifacts.loading import load_forward
from blockdsl.artifacts.parameters import ALL, Request, lift_parameters
from blockdsl.artifacts.summary import summarize
from blockdsl.backend.files import StrPath
from blockdsl.errors import BlockWarning
from blockdsl.graph import current
from blockdsl.graph.context import adopt

__all__ = ["Finding", "Report", "Subject", "concerns", "export_findings", "inspect"]


def inspect(model: onnx.ModelProto | StrPath) -> Report:
    """Look a forward model over for training.

    The findings are about what an exporter changed (folded, merged and untied weights, layers in
    evaluation mode, sizes of its example) and about what cannot be trained. No runtime is needed.

    Args:
        model: The forward model, or the path of its file; it is never changed.

    Returns:
        The findings, and what `generate_artifacts` would train by default.

    Raises:
        ModelFileError: The model's file is missing or is not an ONNX model.
        ArtifactError: The model cannot be trained in any way: it has no outputs, or its opset is
            too old.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base() as handle:
        ...     x = blockdsl.input("x", shape=("batch", 3))
        ...     blockdsl.graph.current().set_outputs([blockdsl.blocks.Linear(3, 2)(x)])
        >>> report = blockdsl.inspect(handle.model)
        >>> report.findings, report.summary
        ([], 'trains 2 of 2 tensors, 8 of 8 values')
    """
    proto, path, weights = load_forward(model)
    check_runnable(proto)
    subject = Subject(proto, weights)
    findings = [
        *export_findings(subject),
        *renamed_weights(subject),
        *integer_weights(subject),
        *sizes(subject),
    ]
    declared = onnx.GraphProto(value_info=proto.graph.value_info, output=proto.graph.output)
    lift_parameters(proto, Request(ALL, []), weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BlockWarning)  # the findings say it
        with adopt(proto, path):
            graph = current()
            types = {name: graph.type_proto(name) for name in graph.known_names()}
            findings += wrong_declarations(declared, types)
            selection = select_trained(graph, weights)
            findings += outputs_and_gradients(declared, graph, selection)
    made = graph.constants_made
    own = {name: role for name, role in selection.roles.items() if name not in made}
    summary = summarize(selection.trained, selection.frozen, own)
    findings.sort(key=lambda finding: not finding.changes_training)
    return Report(findings, summary, selection.trained)


def export_findings(subject: Subject) -> Iterator[Finding]:
    """Yield what an exporter did to the parameters of a module and to its mode."""
    yield from merged_weights(subject)
    yield from untied_weights(subject)
    yield from batch_norms_and_dropouts(subject)
    yield from computed_weights(subject)
    yield from dropped_biases(subject)


def concerns(finding: Finding, names: Collection[str]) -> bool:
    """Whether a finding is about one of some tensors, or about none in particular."""
    return not finding.tensors or any(name in names for name in finding.tensors)
