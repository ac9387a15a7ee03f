"""Weights that are no initializers of the graph made ones, so that they can be trained.

They are in Constant nodes, as PaddlePaddle's converter and spox write them all, in the branches of
an If and the bodies of loops, or in functions of the model.
"""

from __future__ import annotations

from collections.abc import Iterable

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

from blockdsl.artifacts.steps import Owner, Source
from blockdsl.graph.walk import all_nodes, rename_tensors


def lift(model: ModelProto, sources: Iterable[Source]) -> None:
    """Make tensors initializers of the graph, in place and under their own names.

    Args:
        model: The model, without sparse tensors.
        sources: The tensors, of `steps_of` this very model.
    """
    for source in sources:
        if source.is_initializer:
            continue
        assert source.tensor is not None
        tensor = TensorProto()
        tensor.CopyFrom(source.tensor)
        tensor.name = source.name
        model.graph.initializer.append(tensor)
        _remove(source)
        if source.function is not None:
            _pass_to(model, source.function, source.name)


def _remove(source: Source) -> None:
    """Take a tensor out of the graph that holds it, which reads the lifted one instead."""
    owner, local, name = source.owner, source.local, source.name
    place = 0
    if source.in_node:
        place = next(i for i, node in enumerate(owner.node) if local in node.output)
        del owner.node[place]
    elif isinstance(owner, GraphProto):
        place = next(i for i, t in enumerate(owner.initializer) if t.name == local)
        del owner.initializer[place]
        place = 0
    if source.is_outermost:
        return  # an initializer may be an output of the graph
    if local in _output_names(owner):
        # A body cannot return a tensor of the graph around it as it is.
        rest = list(owner.node)
        fresh = helper.make_node("Identity", [name], [f"{name}/copy" if name == local else local])
        if name == local:
            _rename_outputs(owner, local, fresh.output[0])
        del owner.node[:]
        owner.node.extend([*rest[:place], fresh, *rest[place:]])
    if name != local:
        for node in owner.node:
            if local not in node.output:
                rename_tensors(node, {local: name})


def _output_names(owner: Owner) -> list[str]:
    return (
        list(owner.output) if isinstance(owner, FunctionProto) else [o.name for o in owner.output]
    )


def _rename_outputs(owner: Owner, old: str, new: str) -> None:
    if isinstance(owner, FunctionProto):
        owner.output[:] = [new if name == old else name for name in owner.output]
        return
    for output in owner.output:
        if output.name == old:
            output.name = new


def _pass_to(model: ModelProto, function: FunctionProto, name: str) -> None:
    """Make a tensor of the graph an input of a function, wherever it is called."""
    waiting, told = [function], {(function.domain, function.name)}
    while waiting:
        called = waiting.pop()
        called.input.append(name)
        for caller in [None, *model.functions]:
            calls = _calls(model.graph if caller is None else caller, called)
            for call in calls:
                missing = len(called.input) - 1 - len(call.input)
                call.input.extend([*[""] * missing, name])
            if caller is not None and calls and (caller.domain, caller.name) not in told:
                told.add((caller.domain, caller.name))
                waiting.append(caller)


def _calls(graph: Owner, function: FunctionProto) -> list[NodeProto]:
    key = (function.domain, function.name)
    return [node for node in all_nodes(graph.node) if (node.domain, node.op_type) == key]
