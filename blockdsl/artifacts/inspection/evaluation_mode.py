"""Layers that an export in evaluation mode leaves without what they do in training."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from blockdsl.artifacts.exporter import Call
from blockdsl.artifacts.inspection.finding import Finding
from blockdsl.artifacts.inspection.subject import Subject
from blockdsl.artifacts.tensor_names import is_anonymous

FOLDED = "folded BatchNormalization"
_CONVOLUTIONS = ("Conv", "ConvTranspose")
_BY_FUSION = re.compile(
    r"(fused|folded)_?(bn|batch_?norm)|(bn|batch_?norm)_?(fusion|fused|folded|offset)",
    re.IGNORECASE,
)
"""Names that tf2onnx and ONNX Runtime give to weights that took a BatchNormalization in."""

_TRAINING_CALL = re.compile(r"aten\.(native_)?batch_norm\.default\]\(args = \([^()]*\bTrue\b")

_TRAINING_EXPORT = (
    "torch.onnx.export(model.train(), ..., dynamo=False, do_constant_folding=False, "
    "training=torch.onnx.TrainingMode.TRAINING)"
)


def batch_norms_and_dropouts(subject: Subject) -> Iterator[Finding]:
    """Yield findings on BatchNormalization and Dropout that are folded or in evaluation mode."""
    yield from _folded(subject)
    yield from _batch_norms(subject)
    yield from _dropouts(subject)


def _folded(subject: Subject) -> Iterator[Finding]:
    nodes = [node for node, call in subject.exporter.calls if _took_batch_norm(subject, node, call)]
    if nodes:
        weights = dict.fromkeys(
            subject.source(name)
            for node in nodes
            for name in node.input[1:]
            if subject.source(name) in subject.initializers
        )
        yield Finding(
            FOLDED,
            f"The exporter folded BatchNormalization into the weights of {_list(nodes)}. Neither "
            f"its scale and bias nor its running statistics are trained.",
            f"Export with {_TRAINING_EXPORT}{_dynamo_alternative(subject)}.",
            tuple(weights),
            _names(nodes),
            changes_training=True,
        )


def _dynamo_alternative(subject: Subject) -> str:
    if not subject.exporter.has_calls:
        return ""
    return (
        ", or with optimize=False and give the BatchNormalization nodes three outputs and the "
        "attribute training_mode=1"
    )


def _took_batch_norm(subject: Subject, node: NodeProto, call: Call) -> bool:
    if call.rewrite:
        return "FuseBatchNorm" in call.rewrite
    if node.op_type not in _CONVOLUTIONS:
        return False
    weights = [subject.source(name) for name in node.input[1:]]
    if any(_BY_FUSION.search(name) for name in weights):
        return True
    # The older exporter gives the result of folding no name. It folds a convolution's weight for
    # other reasons, too, but its bias only into BatchNormalization.
    return (
        subject.exporter.is_torchscript
        and len(weights) == 2
        and all(is_anonymous(name) and name in subject.initializers for name in weights)
    )


def _batch_norms(subject: Subject) -> Iterator[Finding]:
    plain = [
        (node, call)
        for node, call in subject.exporter.calls
        if node.op_type == "BatchNormalization" and not node.domain and not _trains(node)
    ]
    for was_training in (True, False):
        nodes = [node for node, call in plain if _was_training(call) is was_training]
        if nodes:
            yield _batch_norm_finding(nodes, was_training=was_training)


def _batch_norm_finding(nodes: list[NodeProto], *, was_training: bool) -> Finding:
    if was_training:
        message = (
            f"The module was in training mode, and the exporter wrote {_list(nodes)} for "
            f"evaluation: training would normalise by running statistics and never update them."
        )
    else:
        message = (
            f"{_list(nodes)} has no training mode: training normalises by the running statistics "
            f"as they are and never updates them. That is right for frozen statistics only."
        )
    return Finding(
        "BatchNormalization in evaluation mode",
        message,
        f"Export with {_TRAINING_EXPORT}, or give the nodes three outputs and the attribute "
        f"training_mode=1.",
        nodes=_names(nodes),
        changes_training=was_training,
    )


def _was_training(call: Call) -> bool:
    """Whether the call of a node in the module's program normalises by the batch."""
    return "batch_norm_legit_functional" in call.text or bool(_TRAINING_CALL.search(call.text))


def _trains(node: NodeProto) -> bool:
    mode = [helper.get_attribute_value(a) for a in node.attribute if a.name == "training_mode"]
    return bool(mode[0]) if mode else any(node.output[1:])


def _dropouts(subject: Subject) -> Iterator[Finding]:
    idle = [
        node
        for node in subject.nodes
        if node.op_type == "Dropout" and not node.domain and not _drops(subject, node)
    ]
    trains = any("aten.native_dropout" in call.text for _, call in subject.exporter.calls)
    removed = [
        node
        for node, call in subject.exporter.calls
        if node.op_type == "Identity" and "modules.dropout." in call.classes and not trains
    ]
    if nodes := [*idle, *removed]:
        yield Finding(
            "Dropout in evaluation mode",
            f"{_list(nodes)} was exported in evaluation mode, in which dropout does nothing: "
            f"training would not drop.",
            "Call model.train() before torch.onnx.export; with dynamo=False also pass "
            "training=torch.onnx.TrainingMode.TRAINING. Attention's dropout is exported so in "
            "any mode: give its nodes a third input that is true.",
            nodes=_names(nodes),
        )


def _drops(subject: Subject, node: NodeProto) -> bool:
    """Whether a Dropout drops in training, or its mode or ratio is computed."""
    if subject.opset < 12:
        return False
    ratio, mode = (_constant(subject, node, slot) for slot in (1, 2))
    if ratio is not None and not np.any(ratio):
        return True  # it drops nothing in any mode
    return len(node.input) > 2 and (mode is None or bool(np.all(mode)))


def _constant(subject: Subject, node: NodeProto, slot: int) -> np.ndarray | None:
    name = node.input[slot] if slot < len(node.input) else ""
    tensor = subject.constants.get(subject.source(name))
    return None if tensor is None else numpy_helper.to_array(tensor)


def _names(nodes: Iterable[NodeProto]) -> tuple[str, ...]:
    return tuple(node.name or node.output[0] for node in nodes)


def _list(nodes: list[NodeProto]) -> str:
    """Return the first of some nodes by name, and the number of the others."""
    shown = ", ".join(repr(name) for name in _names(nodes[:3]))
    return f"{shown} and {len(nodes) - 3} more" if len(nodes) > 3 else shown
