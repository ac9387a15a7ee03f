"""What would be trained, and what keeps gradients from parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from onnx import GraphProto, NodeProto

from blockdsl.artifacts.inspection.finding import Finding
from blockdsl.artifacts.parameters import ALL, Request, Selection, resolve
from blockdsl.graph.model import Graph


def select_trained(graph: Graph, weights: Mapping[str, np.ndarray]) -> Selection:
    """Return what a loss of all float outputs would train by default.

    Args:
        graph: The open graph; nodes are appended to it.
        weights: The values of initializers that lie in other files.
    """
    request = Request(ALL, [])
    selections = [
        resolve(graph, graph.value(name).sum(), request, weights) for name in _float_outputs(graph)
    ]
    return _union(graph, selections)


def outputs_and_gradients(
    declared: GraphProto, graph: Graph, selection: Selection
) -> Iterator[Finding]:
    """Yield findings on outputs, and on operators that have no gradient."""
    names = [output.name for output in declared.output]
    if len(names) > 1:
        floats = _float_outputs(graph)
        yield Finding(
            "several outputs",
            f"The model has {len(names)} outputs: {', '.join(map(repr, names))}. A loss of "
            f"blockdsl.loss takes one.",
            f"Name it: loss_input_names=[{(floats or names)[0]!r}] in generate_artifacts.",
            tuple(names),
        )
    by_operator: dict[str, list[str]] = {}
    nodes: dict[str, NodeProto] = {}
    for name, node in selection.blocked.items():
        by_operator.setdefault(node.op_type, []).append(name)
        nodes.setdefault(node.op_type, node)
    for op_type, blocked in by_operator.items():
        count = sum(selection.roles[name].values for name in blocked)
        yield Finding(
            "operator without a gradient",
            f"{op_type} ({nodes[op_type].name or nodes[op_type].output[0]!r}) has no gradient: "
            f"{len(blocked)} parameters ({count:,} values) before it are not trained, "
            f"{blocked[0]!r} for one.",
            "Export the model without this operator on the way to the loss, or write its gradient: "
            "blockdsl.gradient.vjp.",
            tuple(blocked),
            (nodes[op_type].name or nodes[op_type].output[0],),
            changes_training=True,
        )
    idle = [
        name
        for name, role in selection.roles.items()
        if role.trained and name not in {*selection.trained, *selection.blocked}
    ]
    if idle:
        yield Finding(
            "unused parameters",
            f"No float output depends on {len(idle)} parameters, {idle[0]!r} for one: they are not "
            f"trained.",
            "Nothing has to be done if the module does not use them.",
            tuple(idle),
        )


def _float_outputs(graph: Graph) -> list[str]:
    names = dict.fromkeys(output.name for output in graph.proto.graph.output)
    return [n for n in names if graph.is_tensor(n) and graph.type_of(n).is_float]


def _union(graph: Graph, selections: list[Selection]) -> Selection:
    trained = {name for one in selections for name in one.trained}
    blocked = {n: node for one in selections for n, node in one.blocked.items() if n not in trained}
    left_out = {name: None for one in selections for name in one.left_out}
    names = graph.initializer_names()
    roles = selections[0].roles if selections else {}
    return Selection([n for n in names if n in trained], [], roles, blocked, list(left_out))
