"""Conversion of a model to another opset."""

from __future__ import annotations

import copy

import onnx
from onnx import ModelProto, version_converter

from blockdsl.errors import OpError
from blockdsl.graph.check import is_small, lift_initializers
from blockdsl.graph.normal_form import normalize
from blockdsl.graph.schema import operator
from blockdsl.graph.walk import nodes_of, opset_of, replace_items


def to_opset(model: ModelProto, opset: int, name: str) -> ModelProto:
    """Return a copy of a model in another opset.

    Args:
        model: The model.
        opset: The opset.
        name: The model, for the error message.

    Raises:
        OpError: It cannot be converted.
    """
    own = opset_of(model) or opset
    changed = [n for n in nodes_of(model) if not (n.domain or _is_unchanged(n.op_type, own, opset))]
    if not changed:
        result = copy.deepcopy(model)
        for imported in result.opset_import:
            imported.version = imported.version if imported.domain else opset
        return result
    advice = (
        f"{name} has opset {own}, and the model under construction has opset {opset}: open that "
        f"one with opset {own}, by blockdsl.empty_base(opset_version={own}) or a converted base."
    )
    outermost = list(model.graph.node)
    for node in changed:
        if not any(node is other for other in outermost):
            raise OpError(
                f"{advice} onnx cannot convert {node.op_type} in a body or function, which changed "
                f"between the two."
            )
    try:
        return _converted_by_onnx(model, opset)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        reason = str(error).splitlines()[0].rpartition(": ")[2]
        raise OpError(f"{advice} onnx cannot convert it: {reason}.") from error


def _converted_by_onnx(model: ModelProto, opset: int) -> ModelProto:
    """Return a model in another opset; large weights, functions and marks are carried past onnx."""
    large = {t.name: t for t in model.graph.initializer if not is_small(t)}
    bare = lift_initializers(model, frozenset(large))
    converted = version_converter.convert_version(bare, opset)
    onnx.checker.check_model(converted)  # onnx leaves attributes that older operators do not have
    replace_items(converted.graph.input, [i for i in converted.graph.input if i.name not in large])
    marks = {t.name: t.metadata_props for t in model.graph.initializer}
    for tensor in converted.graph.initializer:
        tensor.metadata_props.extend(marks.get(tensor.name, ()))
    converted.graph.initializer.extend(large.values())
    replace_items(converted.functions, model.functions)
    normalize(converted)
    return converted


def _is_unchanged(name: str, own: int, opset: int) -> bool:
    """Whether nodes of an operator mean the same in two opsets: at most types were added."""
    forms = [operator(name, version) for version in (own, opset)]
    old, new = (None if form is None else form.schema for form in forms)
    if old is None or new is None or len(old.inputs) != len(new.inputs):
        return False
    defaults = [{n: a.default_value for n, a in s.attributes.items()} for s in (old, new)]
    return defaults[0] == defaults[1]
