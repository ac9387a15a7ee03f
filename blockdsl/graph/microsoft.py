"""The operators of ONNX Runtime that blockdsl can type; onnx has no schemas for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnx import NodeProto, TensorProto, TypeProto, defs, helper, shape_inference

from blockdsl.graph import fused, schema
from blockdsl.graph.infer import unfit
from blockdsl.graph.schema import MICROSOFT, Operator, Parameter

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


def _product(node: NodeProto, types: Types) -> list[TypeProto]:
    """As `MatMul` of factors whose axes are exchanged first."""
    factors = {}
    settings = {a.name: a.i for a in node.attribute}
    for name, side in zip(node.input, "AB", strict=True):
        factors[side] = TypeProto()
        factors[side].CopyFrom(types[name])
        dims = list(types[name].tensor_type.shape.dim)
        if len(dims) > 1 and settings.get(f"transBatch{side}"):
            dims = [*dims[1:-1], dims[0], dims[-1]]
        if len(dims) > 1 and settings.get(f"trans{side}"):
            dims[-2:] = dims[:-3:-1]
        del factors[side].tensor_type.shape.dim[:]
        factors[side].tensor_type.shape.dim.extend(dims)
    plain = helper.make_node("MatMul", list(factors), ["Y"])
    found = shape_inference.infer_node_outputs(defs.get_schema("MatMul"), plain, factors)
    return list(found.values())


_TABLE: dict[str, fused.Row] = {
    # name: inputs and outputs ("?" optional, "*" variadic), attributes, type rule
    "InPlaceAccumulatorV2": (
        "accumulation_buffer value overwrite_flag?",
        "updated_flag accumulation_buffer_out?",
        "",
        _updating(0),
    ),
    "AdamWOptimizer": (
        "lr step weights gradients momentums_1 momentums_2",
        "updated_flag updated_weights? updated_momentums_1? updated_momentums_2?",
        "alpha beta epsilon weight_decay correct_bias adam_mode",
        _updating(2, 4, 5),
    ),
    "SGDOptimizerV2": (
        "lr weights gradients",
        "update_completed updated_weights?",
        "",
        _updating(1),
    ),
    "InplaceClipGradNorm": ("gradients", "clipped_gradients", "max_norm norm_type", _like_first),
    "ReduceAllL2": ("X*", "Y", "", _norm),
    "Gelu": ("X", "Y", "", _like_first),
    "FastGelu": ("X bias?", "Y", "", _like_first),
    "QuickGelu": ("X", "Y", "alpha", _like_first),
    "BiasGelu": ("A B", "C", "", _like_first),
    "FusedMatMul": ("A B", "Y", "alpha transA transB transBatchA transBatchB", _product),
    **fused.TABLE,
}


def _parameter(text: str) -> Parameter:
    name, _, kind = text.partition(":")
    optional, variadic = name.endswith("?"), name.endswith("*")
    return Parameter(name.rstrip("?*"), kind or "T", optional=optional, variadic=variadic)


def _operator(name: str, row: fused.Row, domain: str) -> Operator:
    inputs, outputs, attributes, _ = row
    return Operator(
        name,
        domain,
        1,
        tuple(map(_parameter, inputs.split())),
        tuple(map(_parameter, outputs.split())),
        dict.fromkeys(attributes.split()),
    )


OPERATORS: dict[str, Operator] = {
    name: _operator(name, row, MICROSOFT) for name, row in _TABLE.items()
}

DEFAULT_DOMAIN: dict[str, Operator] = {
    name: _operator(name, row, "") for name, row in fused.DEFAULT_DOMAIN.items()
}


def operator(name: str, version: int, domain: str = "") -> Operator | None:
    """The form of an operator in an opset, or `None` if nothing is known of it."""
    if domain == MICROSOFT:
        return OPERATORS.get(name)
    found = schema.operator(name, version, domain, deprecated=True)
    return DEFAULT_DOMAIN.get(name) if found is None and not domain else found


def newest(name: str, domain: str = "") -> Operator | None:
    """The newest form of an operator, or `None` if nothing is known of it."""
    return schema.newest(name, domain) or operator(name, 0, domain)


def infer_outputs(node: NodeProto, types: Types) -> dict[str, TypeProto]:
    """The types of the outputs of a node of which onnx has no schema.

    Raises:
        GraphError: The inputs do not fit.
    """
    own = node.domain == MICROSOFT
    row = _TABLE[node.op_type] if own else fused.DEFAULT_DOMAIN[node.op_type]
    try:
        found = row[3](node, types)
    except shape_inference.InferenceError as error:
        form = OPERATORS[node.op_type] if own else DEFAULT_DOMAIN[node.op_type]
        raise unfit(form, node, types, error) from error
    return {name: t for name, t in zip(node.output, found, strict=False) if name}
