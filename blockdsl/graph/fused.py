"""What ONNX Runtime's optimisers fuse a model's operators into, and the types of what they return.

Onnx has no schemas for these operators of `com.microsoft`. Two of the optimisers' operators stand
in the default domain, which has none, or none yet, in the model's opset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnx import NodeProto, TensorProto, TypeProto, defs, helper, shape_inference

from blockdsl.graph.tensor import Dim, TensorType

Types = Mapping[str, TypeProto]
TypeRule = Callable[[NodeProto, Types], list[TypeProto]]
Row = tuple[str, str, str, TypeRule]

STATISTIC = "S"
"""Kind of outputs that are float32 whatever the type of the inputs."""


def _first(node: NodeProto, types: Types) -> list[TypeProto]:
    return [types[node.input[0]]]


def _as(name: str, count: int) -> TypeRule:
    """As an operator of ONNX that takes the first of the inputs, and knows some attributes."""

    def rule(node: NodeProto, types: Types) -> list[TypeProto]:
        schema = defs.get_schema(name)
        plain = helper.make_node(name, [n for n in node.input[:count] if n], ["Y"])
        plain.attribute.extend(a for a in node.attribute if a.name in schema.attributes)
        given = {n: types[n] for n in plain.input}
        return list(shape_inference.infer_node_outputs(schema, plain, given).values())

    return rule


def _statistics(*after: int) -> TypeRule:
    """The first input's type, float32 statistics, and then again the types of some inputs."""

    def rule(node: NodeProto, types: Types) -> list[TypeProto]:
        x = _tensor(node, types, 0)
        shape = None if x.shape is None else (None,) * len(x.shape)
        statistic = TensorType(TensorProto.FLOAT, shape).proto()
        count = 1 if node.op_type == "SimplifiedLayerNormalization" else 2
        return [types[node.input[0]], *[statistic] * count, *(types[node.input[i]] for i in after)]

    return rule


def _embedding(node: NodeProto, types: Types) -> list[TypeProto]:
    ids, table = _tensor(node, types, 0), _tensor(node, types, 2)
    summed = _made(table, (*_dims(ids, 2), _dims(table, 2)[1]))
    return [summed, _made(ids, (_dims(ids, 2)[0],)), summed]


def _last_replaced(attribute: str) -> TypeRule:
    """The first input's type, its last dimension as an attribute says."""

    def rule(node: NodeProto, types: Types) -> list[TypeProto]:
        x = _tensor(node, types, 0)
        if x.shape is None:
            return [types[node.input[0]]]
        return [_made(x, (*x.shape[:-1], _settings(node)[attribute]))]

    return rule


def _attention(node: NodeProto, types: Types) -> list[TypeProto]:
    x, weights = _tensor(node, types, 0), _tensor(node, types, 1)
    heads, sizes = _settings(node)["num_heads"], _settings(node).get("qkv_hidden_sizes")
    hidden = _divided(_dims(weights, 2)[1], 3)
    batch, steps, _ = _dims(x, 3)
    value_size = sizes[2] if sizes else hidden
    present = (2, batch, heads, None, _divided(sizes[0] if sizes else hidden, heads))
    return [_made(x, (batch, steps, value_size)), _made(x, present)]


def _multi_head(node: NodeProto, types: Types) -> list[TypeProto]:
    q, heads = _tensor(node, types, 0), _settings(node)["num_heads"]
    value = _tensor(node, types, 2) if len(node.input) > 2 and node.input[2] else None
    batch, steps, *rest = q.shape or (None, None, None)
    size = rest[2] if len(rest) == 3 else _divided(rest[0], heads)
    value_size, length = size, None
    if value is not None and value.shape is not None:
        separate = len(value.shape) == 4
        length = None if any(node.input[6:]) else value.shape[2 if separate else 1]
        value_size = value.shape[3] if separate else _divided(value.shape[2], heads)
    made = (batch, steps, _times(value_size, heads))
    return [_made(q, made)] + [_made(q, (batch, heads, length, n)) for n in (size, value_size)]


def _grouped(node: NodeProto, types: Types) -> list[TypeProto]:
    q, settings = _tensor(node, types, 0), _settings(node)
    heads, shared = settings["num_heads"], settings["kv_num_heads"]
    batch, steps, width = _dims(q, 3)
    packed = not any(node.input[1:3])
    size = _divided(width, heads + 2 * shared if packed else heads)
    present = _made(q, (batch, shared, None, size))
    return [_made(q, (batch, steps, _times(size, heads))), present, present]


def _tensor(node: NodeProto, types: Types, index: int) -> TensorType:
    found = TensorType.of(types[node.input[index]])
    assert found is not None
    return found


def _dims(x: TensorType, rank: int) -> tuple[Dim, ...]:
    return x.shape if x.shape is not None and len(x.shape) == rank else (None,) * rank


def _made(like: TensorType, shape: Sequence[Dim]) -> TypeProto:
    return TensorType(like.elem_type, tuple(shape)).proto()


def _divided(dim: Dim, by: int) -> Dim:
    return dim // by if isinstance(dim, int) else None


def _times(dim: Dim, by: int) -> Dim:
    return dim * by if isinstance(dim, int) else None


def _settings(node: NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


_ACTIVATION = "activation activation_alpha activation_beta activation_gamma"

TABLE: dict[str, Row] = {
    # name: inputs and outputs ("?" optional), attributes, type rule
    "FusedGemm": ("A B C?", "Y", f"alpha beta transA transB {_ACTIVATION}", _as("Gemm", 3)),
    "FusedConv": (
        "X W B? Z?",
        "Y",
        "auto_pad dilations group kernel_shape pads strides activation activation_params",
        _as("Conv", 3),
    ),
    "SkipLayerNormalization": (
        "input skip gamma beta? bias?",
        "output mean?:S inv_std_var?:S input_skip_bias_sum?",
        "epsilon",
        _statistics(0),
    ),
    "SkipSimplifiedLayerNormalization": (
        "input skip gamma bias?",
        "output mean?:S inv_std_var?:S input_skip_bias_sum?",
        "epsilon",
        _statistics(0),
    ),
    "EmbedLayerNormalization": (
        "input_ids:I segment_ids?:I word_embedding position_embedding segment_embedding? gamma "
        "beta mask?:I position_ids?:I",
        "output mask_index?:I embedding_sum?",
        "epsilon mask_index_type",
        _embedding,
    ),
    "RotaryEmbedding": (
        "input position_ids:I cos_cache sin_cache",
        "output",
        "interleaved is_packed_batching num_heads rotary_embedding_dim scale",
        _first,
    ),
    "Attention": (
        "input weights bias? mask_index?:M past? attention_bias? past_sequence_length?:M",
        "output present?",
        "do_rotary mask_filter_value num_heads past_present_share_buffer qkv_hidden_sizes "
        "rotary_embedding_dim scale unidirectional",
        _attention,
    ),
    "MultiHeadAttention": (
        "query key? value? bias? key_padding_mask?:M attention_bias? past_key? past_value? "
        "past_sequence_length?:M cache_indirection?:M",
        "output present_key? present_value? qk?",
        "mask_filter_value num_heads scale unidirectional",
        _multi_head,
    ),
    "GroupQueryAttention": (
        "query key? value? past_key? past_value? seqlens_k:M total_sequence_length:M cos_cache? "
        "sin_cache? position_ids?:I attention_bias? head_sink? k_scale?:S v_scale?:S "
        "q_norm_weight? k_norm_weight? query_seqlens?:M",
        "output present_key? present_value? output_qk?",
        "causal do_rotary k_norm_epsilon k_quant_type kv_cache_bit_width kv_num_heads "
        "local_window_size num_heads q_norm_epsilon qk_norm_epsilon qk_output rotary_interleaved "
        "scale sliding_window_cache smooth_softmax softcap v_quant_type",
        _grouped,
    ),
    "MatMulNBits": (
        "A B:B scales zero_points?:Z g_idx?:G bias?",
        "Y",
        "K N accuracy_level bits block_size weight_prepacked",
        _last_replaced("N"),
    ),
}
"""The operators of `com.microsoft`."""

DEFAULT_DOMAIN: dict[str, Row] = {
    "LayerNormalization": ("X Scale B?", "Y Mean?:S InvStdDev?:S", "", _statistics()),
    "SimplifiedLayerNormalization": (
        "X scale",
        "Y inv_std_var?:S",
        "axis epsilon stash_type",
        _statistics(),
    ),
}
"""The operators that ONNX Runtime writes without a domain, in models of any opset."""
