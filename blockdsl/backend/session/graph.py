"""What the session engine makes of a training model.

A training model adds its gradients to buffers in place and gives flags that say so: the on-device
training API wants it that way. A session that is bound to memory of our own needs neither: the
gradients become outputs. Two forms are made, each of which runs the batch once:

- overwrite: `<gradient>` is an output (the first step after `lazy_reset_grad`);
- accumulate: `<buffer> + <gradient>` is (the steps after that, for users that accumulate).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from blockdsl.backend.walk import called_functions, is_accumulator
from blockdsl.errors import EngineError, near
from blockdsl.graph.layout import BUFFER, RESET
from blockdsl.graph.tensor import TensorType
from blockdsl.graph.walk import all_nodes, reads, replace_items

_FLOAT_SUMS = {TensorProto.BFLOAT16}  # types that the CPU cannot add


@dataclass
class TrainingGraph:
    """A training model in its overwrite form, and what its inputs and outputs are.

    Attributes:
        model: The model.
        inputs: The inputs that a user feeds.
        outputs: The outputs that a user gets; the loss is the first.
        parameters: The parameters that the model reads, in the order of its inputs.
        gradients: The output that holds the gradient of each trained parameter.
        updates: The output that holds the new value of each running statistic.
    """

    model: ModelProto
    inputs: list[str]
    outputs: list[str]
    parameters: list[str]
    gradients: dict[str, str] = field(default_factory=dict)
    updates: dict[str, str] = field(default_factory=dict)

    def types(self) -> dict[str, TensorType]:
        """The types of the parameters."""
        wanted = set(self.parameters)
        return {v.name: _tensor_type(v) for v in self.model.graph.input if v.name in wanted}


def overwrite_form(model: ModelProto, parameters: Collection[str]) -> TrainingGraph:
    """Turn a training model into its overwrite form, in linear time.

    Args:
        model: The training model; it is taken over and changed.
        parameters: The names of the state's parameters.

    Raises:
        EngineError: The model and the state do not belong together.
    """
    graph = model.graph
    inputs = {v.name: v for v in graph.input}
    constants = {t.name: t for t in graph.initializer}
    accumulators: list[NodeProto] = []
    nodes: list[NodeProto] = []
    for node in graph.node:
        (accumulators if is_accumulator(node) else nodes).append(node)
        if node.op_type == "Constant" and not node.domain:
            constants[node.output[0]] = node.attribute[0].t

    flags = {name for node in accumulators for name in node.output}
    user_outputs = [v for v in graph.output if v.name not in flags]
    names = _Names(nodes, [*inputs, *constants], [v.name for v in user_outputs])
    result = TrainingGraph(model, [], [v.name for v in user_outputs], [])
    outputs, dropped = list(user_outputs), {RESET}
    for node in accumulators:
        target, value, flag = node.input
        parameter = target.removesuffix(BUFFER)
        kind = inputs.get(target)
        if kind is None or parameter not in parameters:
            raise EngineError(_stranger(target, parameter, parameters))
        if target == parameter:
            _check_overwrites(node, flag, constants)
            result.updates[parameter] = names.expose(value, f"{parameter}.update")
        else:
            dropped.add(target)
            result.gradients[parameter] = names.expose(value, f"{parameter}_grad")
        outputs.append(_renamed(kind, names.last))
    for name in inputs:
        if name in parameters:
            result.parameters.append(name)
        elif name not in dropped:
            result.inputs.append(name)

    kept_inputs = [v for v in graph.input if v.name not in dropped]
    nodes += names.identities
    _drop_flags(graph, {node.input[2] for node in accumulators}, nodes)
    functions = called_functions(model, nodes)
    for container, kept in (
        (graph.node, nodes),
        (graph.input, kept_inputs),
        (graph.output, outputs),
        (model.functions, functions),
    ):
        replace_items(container, kept)
    return result


def accumulate_form(training: TrainingGraph) -> tuple[ModelProto, dict[str, str], dict[str, str]]:
    """The model that adds its gradients to buffers.

    Returns:
        The model, the input with the old sum of each parameter's gradient, the output with the new.
    """
    model = ModelProto()
    model.CopyFrom(training.model)
    graph = model.graph
    types = {v.name: v for v in graph.output}
    names = _Names(graph.node, [v.name for v in graph.input], [])
    old, new = {}, {}
    sums: dict[str, ValueInfoProto] = {}
    additions: dict[str, list[NodeProto]] = {}
    for parameter, gradient in training.gradients.items():
        old[parameter] = names.fresh(f"{parameter}_grad.sum.old")
        new[parameter] = names.fresh(f"{parameter}_grad.sum.new")
        graph.input.append(_renamed(types[gradient], old[parameter]))
        sums[gradient] = _renamed(types[gradient], new[parameter])
        elem_type = types[gradient].type.tensor_type.elem_type
        additions[gradient] = _addition(old[parameter], gradient, new[parameter], elem_type)
    # Each sum directly follows its gradient. At the end of the graph they would keep all gradients
    # alive until then, and onnxruntime 1.19 takes ten times as long to load such a model.
    nodes = []
    for node in graph.node:
        nodes.append(node)
        for name in node.output:
            nodes += additions.get(name, [])
    replace_items(graph.node, nodes)
    replace_items(graph.output, [sums.get(v.name, v) for v in graph.output])
    return model, old, new


class _Names:
    """Makes tensors available as outputs under names that nothing else has."""

    def __init__(
        self, nodes: Collection[NodeProto], others: Collection[str], taken: Collection[str]
    ) -> None:
        self._made = {name for node in nodes for name in node.output}
        self._known = {*others, *(n for x in all_nodes(nodes) for n in (*x.input, *x.output))}
        self._taken = set(taken)
        self.identities: list[NodeProto] = []
        self.last = ""

    def expose(self, value: str, wanted: str) -> str:
        """The name under which a tensor can be one more output of the graph.

        That is its own, except when it is an input, a constant or an output already.
        """
        if value not in self._made or value in self._taken:
            fresh = self.fresh(wanted)
            self.identities.append(helper.make_node("Identity", [value], [fresh]))
            value = fresh
        self._taken.add(value)
        self.last = value
        return value

    def fresh(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self._known:
            count += 1
            name = f"{wanted}.{count}"
        self._known.add(name)
        return name


def _check_overwrites(node: NodeProto, flag: str, constants: dict[str, TensorProto]) -> None:
    """A statistic is replaced by its new value, not added to: its flag is the constant True."""
    if flag in constants and np.all(numpy_helper.to_array(constants[flag])):
        return
    raise EngineError(
        f"The training model updates the parameter '{node.input[0]}' with a flag '{flag}' that is "
        "not the constant True. A running statistic is overwritten in every step: make the third "
        "input of its InPlaceAccumulatorV2 a constant [True]."
    )


def _addition(old: str, gradient: str, new: str, elem_type: int) -> list[NodeProto]:
    if elem_type not in _FLOAT_SUMS:
        return [helper.make_node("Add", [old, gradient], [new])]
    wide = [f"{new}.{part}" for part in ("old", "gradient", "sum")]
    return [
        helper.make_node("Cast", [old], [wide[0]], to=TensorProto.FLOAT),
        helper.make_node("Cast", [gradient], [wide[1]], to=TensorProto.FLOAT),
        helper.make_node("Add", wide[:2], [wide[2]]),
        helper.make_node("Cast", [wide[2]], [new], to=elem_type),
    ]


def _drop_flags(graph: GraphProto, flags: set[str], nodes: Sequence[NodeProto]) -> None:
    """Delete the constant flags of accumulators, of which the runtime would warn as unused."""
    unread = flags.difference(*map(reads, nodes))
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name in unread:
            del graph.initializer[index]


def _stranger(target: str, parameter: str, parameters: Collection[str]) -> str:
    if target == parameter:
        return (
            f"The training model accumulates into '{target}', which is neither a gradient buffer "
            "nor a parameter of the checkpoint."
        )
    return (
        f"The training model computes a gradient of '{parameter}', which the checkpoint does not "
        f"have. {near(parameter, parameters)} The two come from different runs of "
        "generate_artifacts, or the gradient of an input is wanted: blockdsl.grad gives that."
    )


def _renamed(value: ValueInfoProto, name: str) -> ValueInfoProto:
    return ValueInfoProto(name=name, type=value.type)


def _tensor_type(value: ValueInfoProto) -> TensorType:
    kind = TensorType.of(value.type)
    if kind is None:
        raise EngineError(f"The training model's parameter '{value.name}' is not a tensor.")
    return kind
