"""Random numbers that the bodies of `If`, `Loop` and `Scan` draw.

The gradient runs a body again, and must not draw others. So the forward node is made to return what
it draws, one result more for each operator that does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from blockdsl.gradient.functions import inline_calls, renamed
from blockdsl.graph.model import Graph
from blockdsl.graph.random import is_random
from blockdsl.graph.tensor import FLOATS
from blockdsl.graph.walk import all_nodes, reads, subgraphs


def keep_draws(graph: Graph, path: Sequence[NodeProto]) -> bool:
    """Make the nodes with bodies among those that are differentiated return what these draw.

    Args:
        graph: The graph.
        path: The nodes.

    Returns:
        Whether anything was changed.
    """
    drawing = [n for n in path if any(_hold_draws(graph, body.node) for body in subgraphs(n))]
    changed = [_keep(graph, node) for node in drawing]
    if any(changed):
        graph.replace_nodes(graph.proto.graph.node)
    return any(changed)


def returned(node: NodeProto, body: GraphProto) -> Iterator[tuple[str, int]]:
    """What a body draws and its node returns: the name in the body, the index of the output."""
    drawn = set(_drawn(body))
    copied = {child.output[0]: child.input[0] for child in body.node if child.op_type == "Identity"}
    first = 1 if node.op_type == "Loop" else 0
    for i, output in enumerate(body.output):
        name = output.name if output.name in drawn else copied.get(output.name, "")
        stacked = i - first - _states(node)
        if name in drawn and stacked >= 0 and not _is_turned(node, stacked):
            yield name, i - first


def _keep(graph: Graph, node: NodeProto, inside: bool = False) -> bool:
    """Add what the bodies of a node draw to its outputs, unless it is there already.

    Args:
        graph: The graph.
        node: The node.
        inside: Whether it stands in a body itself, perhaps in one that runs several times.
    """
    bodies, added = list(subgraphs(node)), []
    for body in bodies:
        inline_calls(graph, body, lambda function: _hold_draws(graph, function.node))
        for child in body.node:
            if any(subgraphs(child)):
                _keep(graph, child, inside=True)
            if child.op_type == "Dropout" and is_random(child):
                _declare_mask(graph, child)
        known = {name for name, _ in returned(node, body)}
        added += [(body, name) for name in _drawn(body) if name not in known]
    instead = {
        (i, name): other
        for i, body in enumerate(bodies)
        for owner in bodies
        if owner is not body
        for name, other in _nothing(
            graph, node, owner, body, [n for o, n in added if o is owner], inside
        ).items()
    }
    for owner, name in added:
        node.output.append(graph.names.unique(f"{node.name or node.op_type}.{name}"))
        for i, body in enumerate(bodies):
            _return(graph, body, name if body is owner else instead[i, name])
    for attribute in node.attribute:
        if attribute.name in _OUTPUT_ORDERS:
            attribute.ints.extend([0] * len(added))
    return bool(added)


_OUTPUT_ORDERS = ("scan_output_axes", "scan_output_directions")


def _is_turned(node: NodeProto, output: int) -> bool:
    """Whether a `Scan` stacks an output in another order than that of its steps."""
    return any(a.ints[output] for a in node.attribute if a.name in _OUTPUT_ORDERS)


def _drawn(body: GraphProto) -> list[str]:
    """The names of what a body draws, itself or in the bodies of its nodes."""
    found = []
    for node in body.node:
        if is_random(node):
            found.append(node.output[1 if node.op_type == "Dropout" else 0])
        for inner in subgraphs(node):
            found += [node.output[i] for _, i in returned(node, inner)]
    return list(dict.fromkeys(found))


def _declare_mask(graph: Graph, node: NodeProto) -> None:
    if len(node.output) < 2 or not node.output[1]:
        del node.output[1:]
        node.output.append(graph.names.unique(f"{node.name or node.op_type}.mask"))


def _return(graph: Graph, body: GraphProto, name: str) -> None:
    """Make a tensor one more output of a body."""
    if any(output.name == name for output in body.output):
        copy = graph.names.unique(name)
        body.node.append(helper.make_node("Identity", [name], [copy]))
        name = copy
    body.output.append(ValueInfoProto(name=name))


def _nothing(
    graph: Graph,
    node: NodeProto,
    owner: GraphProto,
    body: GraphProto,
    drawn: Sequence[str],
    inside: bool,
) -> dict[str, str]:
    """What the other branch of an `If` returns for draws that only one has.

    Where a loop may stack it with the draws of other steps it must have their shape: the other
    branch draws as well, for nobody. Otherwise it is a scalar.
    """
    kinds = {name: 0 if inside else _type_of_draw(graph, node, owner, name) for name in drawn}
    unknown = [name for name, kind in kinds.items() if not kind]
    made = _drawn_again(graph, owner, body, unknown)
    for name, kind in kinds.items():
        if kind:
            made[name] = graph.names.unique("nothing")
            zero = helper.make_tensor("", kind, [], [0])
            body.node.append(helper.make_node("Constant", [], [made[name]], value=zero))
    return made


def _drawn_again(
    graph: Graph, owner: GraphProto, body: GraphProto, drawn: Sequence[str]
) -> dict[str, str]:
    """Copy the draws of one branch to another, and what they are made of."""
    needed, sources = set(drawn), []
    for child in reversed(owner.node):
        if not needed.isdisjoint(child.output):
            needed |= reads(child)
            sources.append(child)
    weights = [t for t in owner.initializer if t.name in needed]
    own = [t.name for t in weights] + [o for child in sources for o in child.output if o]
    names = {name: graph.names.unique(name) for name in own}
    for weight in weights:
        copied = body.initializer.add()
        copied.CopyFrom(weight)
        copied.name = names[weight.name]
    for child in reversed(sources):
        copy = renamed(child, names)
        copy.name = graph.names.unique(child.name or child.op_type)
        body.node.append(copy)
    return {name: names[name] for name in drawn}


def _type_of_draw(graph: Graph, node: NodeProto, owner: GraphProto, name: str) -> int:
    """The element type of a draw, 0 if it is not known."""
    source = next(child for child in owner.node if name in child.output)
    for inner in subgraphs(source):
        for drawn, i in returned(source, inner):
            if source.output[i] == name:
                return _type_of_draw(graph, node, inner, drawn)
    if source.op_type == "Dropout":
        return TensorProto.BOOL
    dtype = next((a.i for a in source.attribute if a.name == "dtype"), 0)
    if dtype:
        return dtype
    if source.op_type in ("RandomNormal", "RandomUniform"):
        return TensorProto.FLOAT
    if source.op_type == "Multinomial":
        return TensorProto.INT32
    known = (graph.type_of(n).elem_type for n in source.input if graph.is_tensor(n))
    return next((kind for kind in known if kind in FLOATS), 0)


def _states(node: NodeProto) -> int:
    """How many of the outputs of a node are not those of every step, one after the other."""
    if node.op_type == "Loop":
        return len(node.input) - 2
    if node.op_type == "Scan":
        slices: int = next(a.i for a in node.attribute if a.name == "num_scan_inputs")
        return len(node.input) - slices
    return 0


def _hold_draws(graph: Graph, nodes: Iterable[NodeProto]) -> bool:
    for node in all_nodes(nodes):
        function = graph.function_of(node)
        if is_random(node) or (function is not None and _hold_draws(graph, function.node)):
            return True
    return False
