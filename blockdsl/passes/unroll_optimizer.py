"""The native form of an optimizer model rewritten into the plain form.

The on-device training API feeds an optimizer sequences of parameters and gradients, which its
kernels update in place. A session with bound memory needs an input and an output for each tensor:
then it writes each new value over the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from blockdsl.errors import GraphError
from blockdsl.graph.context import activate
from blockdsl.graph.layout import NEW
from blockdsl.graph.model import Graph
from blockdsl.graph.schema import MICROSOFT
from blockdsl.graph.value import Value
from blockdsl.optim.adamw import adamw_of
from blockdsl.optim.arithmetic import clip_factor, reduce_all_l2
from blockdsl.optim.chain import AbstractChain
from blockdsl.optim.native import kernel_context
from blockdsl.optim.plain_form import scalar_inputs, tensor_inputs
from blockdsl.optim.sgd import SGD

_CLIP = "InplaceClipGradNorm"
_OPTIMIZERS: dict[str, Callable[..., AbstractChain]] = {
    "AdamWOptimizer": adamw_of,
    "SGDOptimizerV2": SGD,
}


def unroll_optimizer(
    model: ModelProto, parameters: Sequence[tuple[str, int, tuple[int, ...]]]
) -> ModelProto:
    """Return the plain form of an optimizer model in native form; see `blockdsl.optim.plain_form`.

    Args:
        model: A model of `learning_rate`, `step` and sequences of float32, with an AdamWOptimizer
            or an SGDOptimizerV2 and at most one InplaceClipGradNorm: onnxruntime-training's, say.
        parameters: Name, element type and shape of every parameter, in the order of the sequences.

    Raises:
        GraphError: The model is not one of these, a parameter is not float32, or there is none.
    """
    node, clip = _parts(model)
    _check(parameters)
    optimizer = _OPTIMIZERS[node.op_type](**_attributes(node))
    plain = ModelProto(ir_version=model.ir_version, producer_name="blockdsl")
    plain.graph.name = "optimizer"
    plain.opset_import.extend(o for o in model.opset_import if o.domain in ("", "ai.onnx"))
    graph = Graph(plain)
    with activate(graph):
        rate, step = scalar_inputs(graph)
        inputs = [tensor_inputs(graph, *parameter, optimizer.slots) for parameter in parameters]
        factor = None
        if clip is not None:
            norm = reduce_all_l2(*(gradient for _, gradient, *_ in inputs))
            factor = clip_factor(norm, clip.get("max_norm", 1.0))
        start = len(plain.graph.node)
        parameter, gradient, *slots = inputs[0]
        clipped = gradient if factor is None else gradient * factor
        context = kernel_context(rate, step)
        new, new_slots = optimizer.update_parameter(parameter, clipped, slots, context)
    updates = dict(zip((parameter, *slots), (new, *new_slots), strict=True))
    if factor is not None:
        updates[gradient] = clipped  # as the kernel does, and PyTorch's clip_grad_norm_
    _repeat(plain, start, inputs, updates)
    return plain


def _parts(model: ModelProto) -> tuple[NodeProto, dict[str, Any] | None]:
    """Return the optimizer node of a model, and the attributes of its clipping node, if any."""
    nodes = {node.op_type: node for node in model.graph.node if node.domain == MICROSOFT}
    optimizers = [node for name, node in nodes.items() if name in _OPTIMIZERS]
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
    model: ModelProto, start: int, inputs: Sequence[Sequence[Value]], updates: dict[Value, Value]
) -> None:
    """Copy the nodes from `start` on that update the first parameter for every parameter.

    `updates` maps the inputs of the first parameter to their new values. Copying a node takes a
    fraction of the time of building it, and hundreds of parameters have many thousands.
    """
    graph = model.graph
    depends = set(inputs[0])
    template, shared = list[NodeProto](), list[NodeProto]()
    for node in graph.node[start:]:
        on_first = not depends.isdisjoint(node.input)
        (template if on_first else shared).append(node)
        depends.update(node.output if on_first else ())
    del graph.node[start:]
    graph.node.extend(shared)
    inner = [output for node in template for output in node.output]
    types = {info.name: info.type for info in graph.input}
    for tensors in inputs:
        names: dict[str, str] = dict(zip(inputs[0], tensors, strict=True))
        sources = [names[name] for name in updates]
        names |= {name: f"{tensors[0]}/{name}" for name in inner}
        names |= {
            new: f"{source}{NEW}" for new, source in zip(updates.values(), sources, strict=True)
        }
        for node in template:
            copy = graph.node.add()
            copy.CopyFrom(node)
            copy.name = f"{tensors[0]}/{node.name}"
            copy.input[:] = [names.get(name, name) for name in node.input]
            copy.output[:] = [names[name] for name in node.output]
        for source in sources:
            graph.output.append(ValueInfoProto(name=f"{source}{NEW}", type=types[source]))
