"""The building blocks.

A block's configuration is given when it is made, tensors when it is called:
`Clip(0, 1)(x)`. Tensors are values or their names. Every operator that has no block here is
`blockdsl.op.X(...)`.
"""

from blockdsl.blocks.basic import (
    Cast,
    Constant,
    Identity,
    InputLike,
    LabelEncoder,
    PassThrough,
    SequenceConstruct,
    Sequential,
)
from blockdsl.blocks.block import Block
from blockdsl.blocks.elementwise import (
    Abs,
    Add,
    Clip,
    Div,
    Exp,
    Gelu,
    Log,
    Max,
    Mean,
    Min,
    Mul,
    Neg,
    Pow,
    Relu,
    Sigmoid,
    Sqrt,
    Sub,
    Sum,
    Tanh,
    Where,
)
from blockdsl.blocks.linalg import Gemm, Linear, MatMul
from blockdsl.blocks.model import Model
from blockdsl.blocks.nn import Conv, Dropout, Embedding, LogSoftmax, Softmax
from blockdsl.blocks.normalization import BatchNorm, LayerNorm
from blockdsl.blocks.operator import _BinaryOp, _UnaryOp  # noqa: F401 (bases of custom blocks)
from blockdsl.blocks.pooling import AveragePool, GlobalAveragePool, MaxPool
from blockdsl.blocks.reduction import ReduceAllL2, ReduceMax, ReduceMean, ReduceMin, ReduceSum
from blockdsl.blocks.shape import (
    Concat,
    Flatten,
    Gather,
    Reshape,
    Slice,
    Split,
    Squeeze,
    Transpose,
    Unsqueeze,
)

# Grouped by family, not sorted: it is the table of contents.
__all__ = [  # noqa: RUF022
    "Block",
    # elementwise
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Pow",
    "Max",
    "Min",
    "Sum",
    "Mean",
    "Neg",
    "Abs",
    "Exp",
    "Log",
    "Sqrt",
    "Sigmoid",
    "Tanh",
    "Relu",
    "Gelu",
    "Clip",
    "Where",
    # reduction
    "ReduceMean",
    "ReduceSum",
    "ReduceMax",
    "ReduceMin",
    "ReduceAllL2",
    # linalg
    "MatMul",
    "Gemm",
    "Linear",
    # shape
    "Reshape",
    "Transpose",
    "Concat",
    "Split",
    "Slice",
    "Gather",
    "Unsqueeze",
    "Squeeze",
    "Flatten",
    # nn
    "Conv",
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "BatchNorm",
    "LayerNorm",
    "Dropout",
    "Embedding",
    "Softmax",
    "LogSoftmax",
    # basic
    "Constant",
    "Identity",
    "PassThrough",
    "InputLike",
    "Cast",
    "LabelEncoder",
    "SequenceConstruct",
    "Sequential",
    "Model",
]
