"""Optimizer models of sequences, rewritten with an input and an output for every tensor.

The on-device training API feeds an optimizer whole sequences of parameters and gradients, which its
kernels change in place. A session that is bound to memory of its own needs tensors instead: then it
writes each new value where the old one lay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from blockdsl.errors import GraphError
from blockdsl.gradient.plain import scalar_inputs, tensor_inputs
from blockdsl.gradient.updates import AdamW, clip_factor, sgd
from blockdsl.graph.context import activate
from blockdsl.graph.layout import NEW
from blockdsl.graph.model import Graph
from blockdsl.graph.schema import MICROSOFT
from blockdsl.graph.value import Value

_CLIP = "InplaceClipGradNorm"
_SLOTS = {"AdamWOptimizer": ("momentum0", "momentum1"), "SGDOptimizerV2": ()}


def unroll_optimizer(
    model: ModelProto, parameters: Sequence[tuple[str, int, tuple[int, ...]]]
) -> ModelProto:
    """The plain form of an optimizer model of sequences; see `blockdsl.gradient.plain`.

    Args:
        model: A model of `learning_rate`, `step` and sequences of float32, with an AdamWOptimizer
            or an SGDOptimizerV2 and at most one InplaceClipGradNorm: onnxruntime-training's, say.
        parameters: Name, element type and shape of every parameter, in the order of the sequences.

    Raises:
        GraphError: The model is none of these, or a parameter is not of float32, or there is none.
    """
    optimizer, clip = _parts(model)
    _check(parameters)
    slots = _SLOTS[optimizer.op_type]
    plain = ModelProto(ir_version=model.ir_version, producer_name="blockdsl")
    plain.graph.name = "optimizer"
    plain.opset_import.extend(o for o in model.opset_import if o.domain in ("", "ai.onnx"))
    graph = Graph(plain)
    with activate(graph):
        rate, step = scalar_inputs(graph)
        inputs = [tensor_inputs(graph, *parameter, slots) for parameter in parameters]
        gradients = [gradient for _, gradient, *_ in inputs]
        factor = clip_factor(gradients, clip.get("max_norm", 1.0)) if clip is not None else None
        adamw = AdamW(rate, step, **_attributes(optimizer)) if slots else None
        start = len(plain.graph.node)
        parameter, gradient, *moments = inputs[0]
        clipped = gradient if factor is None else gradient * factor
        new = adamw(parameter, clipped, *moments) if adamw else [sgd(rate, parameter, clipped)]
    changed = dict(zip((parameter, *moments), new, strict=True))
    if factor is not None:
        changed[gradient] = clipped  # as the kernel does, and PyTorch's clip_grad_norm_
    _repeat(plain, start, inputs, changed)
    return plain


def _parts(model: ModelProto) -> tuple[NodeProto, dict[str, Any] | None]:
    """The optimizer of a model and the attributes of the clipping before it, if there is one."""
    nodes = {node.op_type: node for node in model.graph.node if node.domain == MICROSOFT}
    optimizers = [node for name, node in nodes.items() if name in _SLOTS]
    clip = nodes.get(_CLIP)
    if len(optimizers) != 1 or len(model.graph.node) != (1 if clip is None else 2):
        shown = ", ".join(
            f"{node.domain or 'ai.onnx'}::{node.op_type}" for node in model.graph.node
        )
        raise GraphError(
            f"The optimizer model takes sequences and consists of [{shown}]; known are models of "
            f"an AdamWOptimizer or an SGDOptimizerV2, with or without an {_CLIP}. Write other "
            f"optimizers as a subclass of blockdsl.optim.Optimizer."
        )
    return optimizers[0], None if clip is None else _attributes(clip)


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _check(parameters: Sequence[tuple[str, int, tuple[int, ...]]]) -> None:
    if not parameters:
        raise GraphError("An optimizer model needs parameters, and no parameter is trained.")
    for name, elem_type, _ in parameters:
        if elem_type != TensorProto.FLOAT:
            found = helper.tensor_dtype_to_np_dtype(elem_type)
            raise GraphError(
                f"The optimizer model takes sequences of float32, and the parameter {name!r} is of "
                f"{found}. An optimizer of blockdsl.optim makes a model that fits."
            )


def _repeat(
    model: ModelProto, start: int, inputs: Sequence[Sequence[Value]], changed: dict[Value, Value]
) -> None:
    """Say of all parameters what the nodes from `start` on say of the first.

    `changed` has the new values of the inputs of the first.

    Copying nodes takes a fraction of the time that building them does, of which a model of hundreds
    of parameters has many thousands.
    """
    graph = model.graph
    template = list(graph.node[start:])
    del graph.node[start:]
    inner = [output for node in template for output in node.output]
    types = {info.name: info.type for info in graph.input}
    for tensors in inputs:
        names: dict[str, str] = dict(zip(inputs[0], tensors, strict=True))
        sources = [names[name] for name in changed]
        names |= {name: f"{tensors[0]}/{name}" for name in inner}
        names |= {
            new: f"{source}{NEW}" for new, source in zip(changed.values(), sources, strict=True)
        }
        for node in template:
            copy = graph.node.add()
            copy.CopyFrom(node)
            copy.name = f"{tensors[0]}/{node.name}"
            copy.input[:] = [names.get(name, name) for name in node.input]
            copy.output[:] = [names[name] for name in node.output]
        for source in sources:
            graph.output.append(ValueInfoProto(name=f"{source}{NEW}", type=types[source]))
