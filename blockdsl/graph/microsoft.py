"""The `com.microsoft` operators that blockdsl can type; onnx has no schemas for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnx import NodeProto, TensorProto, TypeProto, helper

from blockdsl.graph.schema import MICROSOFT, Operator, Parameter

DOMAIN = MICROSOFT

Types = Mapping[str, TypeProto]
Rule = Callable[[NodeProto, Types], list[TypeProto]]


def _like_first(node: NodeProto, types: Types) -> list[TypeProto]:
    return [types[node.input[0]]]


def _updating(*changed: int) -> Rule:
    """A flag, then the new values of some inputs."""

    def rule(node: NodeProto, types: Types) -> list[TypeProto]:
        flag = helper.make_tensor_type_proto(TensorProto.BOOL, [1])
        return [flag, *(types[node.input[i]] for i in changed)]

    return rule


def _norm(node: NodeProto, types: Types) -> list[TypeProto]:
    elem_type = types[node.input[0]].tensor_type.elem_type
    return [helper.make_tensor_type_proto(elem_type, [])]


_TABLE: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], Rule]] = {
    # name: inputs and outputs ("?" optional, "*" variadic), attributes, type rule
    "InPlaceAccumulatorV2": (
        ("accumulation_buffer", "value", "overwrite_flag?"),
        ("updated_flag", "accumulation_buffer_out?"),
        (),
        _updating(0),
    ),
    "AdamWOptimizer": (
        ("lr", "step", "weights", "gradients", "momentums_1", "momentums_2"),
        ("updated_flag", "updated_weights?", "updated_momentums_1?", "updated_momentums_2?"),
        ("alpha", "beta", "epsilon", "weight_decay", "correct_bias", "adam_mode"),
        _updating(2, 4, 5),
    ),
    "SGDOptimizerV2": (
        ("lr", "weights", "gradients"),
        ("update_completed", "updated_weights?"),
        (),
        _updating(1),
    ),
    "InplaceClipGradNorm": (
        ("gradients",),
        ("clipped_gradients",),
        ("max_norm", "norm_type"),
        _like_first,
    ),
    "ReduceAllL2": (("X*",), ("Y",), (), _norm),
    "Gelu": (("X",), ("Y",), (), _like_first),
    "FastGelu": (("X", "bias?"), ("Y",), (), _like_first),
    "QuickGelu": (("X",), ("Y",), ("alpha",), _like_first),
    "BiasGelu": (("A", "B"), ("C",), (), _like_first),
}


def _parameter(text: str) -> Parameter:
    return Parameter(text.rstrip("?*"), "T", optional=text[-1] == "?", variadic=text[-1] == "*")


def _operator(name: str) -> Operator:
    inputs, outputs, attributes, _ = _TABLE[name]
    return Operator(
        name,
        DOMAIN,
        1,
        tuple(map(_parameter, inputs)),
        tuple(map(_parameter, outputs)),
        dict.fromkeys(attributes),
    )


OPERATORS: dict[str, Operator] = {name: _operator(name) for name in _TABLE}


def infer_outputs(node: NodeProto, types: Types) -> dict[str, TypeProto]:
    """The types of the outputs of a `com.microsoft` node."""
    found = _TABLE[node.op_type][3](node, types)
    return {name: t for name, t in zip(node.output, found, strict=False) if name}
