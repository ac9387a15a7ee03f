"""The inputs of operators that take parameters, and those that never do.

One row an operator: the role of a constant in each of its input slots. What is in no row is an
operand of elementwise arithmetic, or a setting of the operator.
"""

from __future__ import annotations

from collections.abc import Mapping

from blockdsl.graph.schema import MICROSOFT

WEIGHT, BIAS, SCALE, SLOPE = "weight", "bias", "scale", "slope"
EMBEDDING, STATE, TOKEN = "embedding", "initial state", "token"
STATISTIC, QUANTIZATION, TABLE = "statistic", "quantization", "table"
CLASS_WEIGHT, WINDOW, ADDED = "class weight", "window", "added"

Slots = Mapping[int, str]

_PRODUCT: Slots = {0: WEIGHT, 1: WEIGHT}
_CONVOLUTION: Slots = {1: WEIGHT, 2: BIAS}
_NORMALIZATION: Slots = {1: SCALE, 2: BIAS}
_RECURRENCE: Slots = {1: WEIGHT, 2: WEIGHT, 3: BIAS, 5: STATE}
_MIXTURE: Slots = {slot: BIAS if slot in (3, 5, 7) else WEIGHT for slot in range(2, 8)}

_ONNX: dict[str, Slots] = {
    "Attention": {3: ADDED},
    "BatchNormalization": {**_NORMALIZATION, 3: STATISTIC, 4: STATISTIC},
    "CausalConvWithState": {**_CONVOLUTION, 3: STATE},
    "Conv": _CONVOLUTION,
    "ConvTranspose": _CONVOLUTION,
    "DeformConv": {1: WEIGHT, 3: BIAS},
    "DequantizeLinear": {1: QUANTIZATION, 2: QUANTIZATION},
    "Einsum": dict.fromkeys(range(8), WEIGHT),
    "GRU": _RECURRENCE,
    "Gather": {0: EMBEDDING},
    "GatherElements": {0: EMBEDDING},
    "GatherND": {0: EMBEDDING},
    "Gemm": {**_PRODUCT, 2: BIAS},
    "GroupNormalization": _NORMALIZATION,
    "InstanceNormalization": _NORMALIZATION,
    "LSTM": {**_RECURRENCE, 6: STATE, 7: WEIGHT},
    "LayerNormalization": _NORMALIZATION,
    "LinearAttention": {3: STATE},
    "MatMul": _PRODUCT,
    "NegativeLogLikelihoodLoss": {2: CLASS_WEIGHT},
    "PRelu": {1: SLOPE},
    "QLinearConv": {**dict.fromkeys((1, 4, 6), QUANTIZATION), 3: WEIGHT, 8: BIAS},
    "QLinearMatMul": {**dict.fromkeys((1, 4, 6), QUANTIZATION), 0: WEIGHT, 3: WEIGHT},
    "QuantizeLinear": {1: QUANTIZATION, 2: QUANTIZATION},
    "ConvInteger": {1: WEIGHT},
    "MatMulInteger": _PRODUCT,
    "RMSNormalization": {1: SCALE},
    "RNN": _RECURRENCE,
    "RotaryEmbedding": {1: TABLE, 2: TABLE},
    "STFT": {2: WINDOW},
    "SimplifiedLayerNormalization": {1: SCALE},
    "SoftmaxCrossEntropyLoss": {2: CLASS_WEIGHT},
}

_MICROSOFT: dict[str, Slots] = {
    "Attention": {1: WEIGHT, 2: BIAS, 5: ADDED},
    "BiasAdd": {1: BIAS},
    "BiasDropout": {1: BIAS},
    "BiasGelu": {1: BIAS},
    "BiasSoftmax": {1: ADDED},
    "BiasSplitGelu": {1: BIAS},
    "ConvTransposeWithDynamicPads": {1: WEIGHT, 3: BIAS},
    "DynamicQuantizeLSTM": {1: WEIGHT, 2: WEIGHT, 3: BIAS, 5: STATE, 6: STATE, 7: WEIGHT}
    | dict.fromkeys(range(8, 12), QUANTIZATION),
    "DynamicQuantizeMatMul": {1: WEIGHT, 2: QUANTIZATION, 3: QUANTIZATION, 4: BIAS},
    "EmbedLayerNormalization": dict.fromkeys((2, 3, 4), EMBEDDING) | {5: SCALE, 6: BIAS},
    "FastGelu": {1: BIAS},
    "FusedConv": _CONVOLUTION,
    "FusedGemm": {**_PRODUCT, 2: BIAS},
    "FusedMatMul": _PRODUCT,
    "FusedMatMulActivation": _PRODUCT,
    "GatedRelativePositionBias": {1: BIAS, 3: WEIGHT, 4: BIAS, 5: WEIGHT},
    "GatherBlockQuantized": {0: EMBEDDING, 2: QUANTIZATION, 3: QUANTIZATION},
    "GemmFastGelu": {1: WEIGHT, 2: BIAS},
    "GroupNorm": _NORMALIZATION,
    "GroupQueryAttention": {7: TABLE, 8: TABLE, 10: ADDED, 11: WEIGHT, 14: SCALE, 15: SCALE}
    | dict.fromkeys((12, 13), QUANTIZATION),
    "LayerNormalization": _NORMALIZATION,
    "MatMulIntegerToFloat": {**_PRODUCT, 2: QUANTIZATION, 3: QUANTIZATION, 6: BIAS},
    "MatMulNBits": {1: WEIGHT, 2: QUANTIZATION, 3: QUANTIZATION, 5: BIAS},
    "MoE": _MIXTURE,
    "MultiHeadAttention": {3: BIAS, 5: ADDED},
    "NhwcConv": _CONVOLUTION,
    "NhwcFusedConv": _CONVOLUTION,
    "PackedAttention": {1: WEIGHT, 2: BIAS, 5: ADDED},
    "PackedMultiHeadAttention": {3: BIAS, 6: ADDED},
    "QAttention": {1: WEIGHT, 2: BIAS, 3: QUANTIZATION, 4: QUANTIZATION},
    "QLinearConv": _ONNX["QLinearConv"],
    "RMSNormalization": {1: SCALE},
    "RelativePositionBias": {0: EMBEDDING},
    "RotaryEmbedding": {2: TABLE, 3: TABLE},
    "SimplifiedLayerNormalization": {1: SCALE},
    "SkipGroupNorm": {**_NORMALIZATION, 4: BIAS},
    "SkipLayerNormalization": {2: SCALE, 3: BIAS, 4: BIAS},
    "SkipSimplifiedLayerNormalization": {2: SCALE, 3: BIAS},
    "TransposeMatMul": _PRODUCT,
    "WordConvEmbedding": {1: WEIGHT, 2: BIAS, 3: EMBEDDING},
}

SLOTS: dict[tuple[str, str], Slots] = {("", name): row for name, row in _ONNX.items()} | {
    (MICROSOFT, name): row for name, row in _MICROSOFT.items()
}
"""By domain and operator, the role of a constant in a slot."""

_LAYOUT = """Cast CastLike CenterCropPad Concat ConcatFromSequence DepthToSpace DequantizeLinear
Dropout Expand Flatten Identity Optional OptionalGetElement Pad QuantizeLinear Reshape
ReverseSequence SequenceAt SequenceConstruct SequenceErase SequenceInsert Slice SpaceToDepth Split
SplitToSequence Squeeze Tile Transpose Trilu Unsqueeze"""
LAYOUT = frozenset(_LAYOUT.split())
"""Operators that move the elements of their data: a role passes through them."""

LOOKUPS = frozenset({"Gather", "GatherElements", "GatherND"})
"""Operators that take rows of a table, of shapes and indices too."""

ALL_DATA = frozenset({"Concat", "ConcatFromSequence", "SequenceConstruct", "SequenceInsert"})
"""Layout operators every input of which is data; of the others the first is."""

ADD, MULTIPLY = "add", "multiply"
ARITHMETIC = {"Add": ADD, "Sub": ADD, "Sum": ADD, "Mul": MULTIPLY, "Div": MULTIPLY}
"""Elementwise operators whose constant operand may be a bias or a scale."""

COMPUTED = frozenset({"Exp", "HardSigmoid", "LogSoftmax", "Sigmoid", "Softmax", "Softplus", "Tanh"})
"""Functions through which a model passes a learned scalar; of a constant they would be folded."""

PRODUCTS = frozenset(
    name
    for (_, name), slots in SLOTS.items()
    if WEIGHT in slots.values() and name not in ("RNN", "GRU", "LSTM", "DynamicQuantizeLSTM")
)
"""Operators that multiply by a weight: what is added next is a bias."""

NORMALIZATIONS = frozenset(
    name for (_, name), slots in SLOTS.items() if SCALE in slots.values()
) | {"LpNormalization", "MeanVarianceNormalization"}
