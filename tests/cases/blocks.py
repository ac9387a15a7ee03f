"""Every block that has values: those with parameters against values drawn as documented."""

import math
import zlib

import numpy as np

from blockdsl import blocks as b
from blockdsl.testing import Case, R


def row(block, inputs, expected, **settings):
    """The case of a block; it runs at the oldest and at a new opset unless it says otherwise."""
    settings.setdefault("opset", [7, 18])
    return Case(
        f"blocks.{type(block).__name__}", inputs, build=block, expected=expected, **settings
    )


def uniform(name, limit, *shape):
    """A parameter as `Linear` and `Conv` document it."""
    seed = [0, zlib.crc32(name.encode())]
    return np.random.default_rng(seed).uniform(-limit, limit, shape)


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def gelu_tanh(x):
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def softmax(x, axis):
    return np.exp(x) / np.exp(x).sum(axis, keepdims=True)


EPSILON = 2**-10
"""An attribute is a float32: this one is the same number in every type."""


def normalised(x, axes):
    spread = np.sqrt(x.var(axes, keepdims=True) + EPSILON)
    return (x - x.mean(axes, keepdims=True)) / spread


def windows(x, size, step):
    """The windows of the last two axes, in two new last axes."""
    view = np.lib.stride_tricks.sliding_window_view(x, (size, size), (-2, -1))
    return view[..., ::step, ::step, :, :]


def conv(x, weight, bias=0.0, step=1, pad=0):
    padded = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    taken = windows(padded, weight.shape[-1], step)
    return np.einsum("nchwij,ocij->nohw", taken, weight) + np.reshape(bias, (-1, 1, 1))


def grouped(x, weight, bias):
    """Two groups, by hand."""
    halves = [conv(x[:, 2 * g : 2 * g + 2], weight[3 * g : 3 * g + 3]) for g in (0, 1)]
    return np.concatenate(halves, 1) + np.reshape(bias, (-1, 1, 1))


X = R(2, 3)
Y = R(3)
IMAGE = R(2, 3, 6, 6)

ELEMENTWISE = [
    row(b.Add(), [X, Y], np.add),
    row(b.Sub(), [X, Y], np.subtract),
    row(b.Mul(), [X, Y], np.multiply),
    row(b.Div(), [X, R(3, low=0.3)], np.divide),
    row(
        b.Max(),
        [X, Y, R(2, 1)],
        lambda *x: np.maximum.reduce(np.broadcast_arrays(*x)),
        opset=[8, 18],
    ),
    row(b.Min(), [X, Y], np.minimum, opset=[8, 18]),
    row(b.Sum(), [X, Y, R(2, 1)], lambda x, y, z: x + y + z, opset=[8, 18]),
    row(b.Mean(), [X, Y, R(2, 1)], lambda x, y, z: (x + y + z) / 3, opset=[8, 18]),
    row(b.Neg(), [X], np.negative),
    row(b.Abs(), [R(2, 3, away=0.1)], np.abs),
    row(b.Exp(), [X], np.exp),
    row(b.Log(), [R(2, 3, low=0.3)], np.log),
    row(b.Sqrt(), [R(2, 3, low=0.3)], np.sqrt),
    row(b.Sigmoid(), [X], lambda x: 1 / (1 + np.exp(-x))),
    row(b.Tanh(), [X], np.tanh),
    row(b.Relu(), [R(2, 3, away=0.1)], lambda x: np.maximum(x, 0)),
    row(b.Pow(2), [X], np.square),
    row(b.Pow(0.5), [R(2, 3, low=0.3)], np.sqrt, name="root"),
    row(b.Clip(-0.5, 0.5), [X], lambda x: np.clip(x, -0.5, 0.5), opset=[7, 11, 18]),
    row(b.Clip(clip_max=0.5), [X], lambda x: np.minimum(x, 0.5), name="max", opset=[7, 11, 18]),
    row(b.Gelu(), [X], gelu, opset=[9, 18]),
    row(b.Gelu("tanh"), [X], gelu_tanh, name="tanh"),
    row(b.Gelu(), [X], None, name="operator", opset=20),
    row(b.Gelu("tanh"), [X], None, name="tanh-operator", opset=20),
    row(b.Where(), [R(2, 3, dtype=bool), X, Y], np.where, opset=[9, 18]),
]

REDUCTION = [
    row(b.ReduceMean(), [X], lambda x: x.mean(keepdims=True)),
    row(b.ReduceMean(False, -1), [X], lambda x: x.mean(-1), name="last"),
    row(b.ReduceSum(keepdims=False), [X], np.sum, opset=[7, 13, 18]),
    row(
        b.ReduceSum(axes=(0, -1)), [R(2, 3, 4)], lambda x: x.sum((0, 2), keepdims=True), name="two"
    ),
    row(b.ReduceMax(axes=1), [X], lambda x: x.max(1, keepdims=True)),
    row(b.ReduceMin(axes=[0]), [X], lambda x: x.min(0, keepdims=True)),
    row(b.ReduceAllL2(), [X, R(4)], lambda x, y: np.sqrt((x**2).sum() + (y**2).sum())),
]

W = uniform("Linear.weight", 3**-0.5, 3, 4)
B = uniform("Linear.bias", 3**-0.5, 4)
XAVIER = uniform("Linear.weight", math.sqrt(6 / 7), 3, 4)

LINALG = [
    row(b.MatMul(), [X, R(3, 4)], np.matmul),
    row(b.Gemm(0.5, 2.0, transB=True), [X, R(4, 3), R(4)], lambda x, y, z: x @ y.T / 2 + 2 * z),
    row(b.Gemm(transA=True), [R(3, 2), R(3, 4)], lambda x, y: x.T @ y, name="no-c", opset=[7, 11]),
    row(b.Linear(3, 4), [X], lambda x: x @ W + B, opset=[7, 11, 18]),
    row(b.Linear(3, 4, alpha=2.0, beta=0.5), [X], lambda x: 2 * x @ W + B / 2, name="scaled"),
    row(b.Linear(3, 4, False), [X], lambda x: x @ W, name="no-bias"),
    row(b.Linear(3, 4, True, 2.0, 0.5), [R(2, 5, 3)], lambda x: 2 * x @ W + B / 2, name="rank3"),
    row(b.Linear(3, 4), [R(3)], lambda x: x @ W + B, name="rank1"),
    row(b.Linear(3, 4, init="xavier"), [X], lambda x: x @ XAVIER + B, name="xavier"),
]

SHAPE = [
    row(b.Reshape((0, -1)), [R(2, 3, 4)], lambda x: x.reshape(2, 12)),
    row(b.Transpose(), [X], np.transpose),
    row(b.Transpose((0, -1, 1)), [R(2, 3, 4)], lambda x: x.transpose(0, 2, 1), name="perm"),
    row(b.Concat(-1), [X, R(2, 2)], lambda x, y: np.concatenate([x, y], 1)),
    row(b.Split(3, -1), [R(2, 6)], lambda x: np.split(x, 3, 1), opset=[7, 13, 18]),
    row(b.Split([1, 4]), [R(5, 2)], lambda x: np.split(x, [1]), name="sizes", opset=[7, 13, 18]),
    row(b.Slice([1, -2], [3, 9]), [R(4, 5)], lambda x: x[1:3, -2:], opset=[7, 10, 18]),
    row(
        b.Slice([4], [0], [-1], [-2]),
        [R(3, 5)],
        lambda x: x[:, 4:0:-2],
        name="steps",
        opset=[10, 18],
    ),
    row(b.Gather(1), [R(2, 4), R(3, ints=4)], lambda x, i: x[:, i]),
    row(b.Unsqueeze((0, -1)), [X], lambda x: x[None, :, :, None], opset=[7, 13]),
    row(b.Squeeze(-1), [R(2, 3, 1)], lambda x: x[..., 0], opset=[7, 13]),
    row(b.Squeeze(), [R(1, 3, 1)], np.squeeze, name="all", symbolic=False, opset=[7, 13]),
    row(b.Flatten(), [R(2, 3, 4)], lambda x: x.reshape(2, 12)),
    row(b.Flatten(-1), [R(2, 3, 4)], lambda x: x.reshape(6, 4), name="last"),
]

K = uniform("Conv.weight", 27**-0.5, 4, 3, 3, 3)
C = uniform("Conv.bias", 27**-0.5, 4)
GROUPED = uniform("Conv.weight", 18**-0.5, 6, 2, 3, 3), uniform("Conv.bias", 18**-0.5, 6)
SPREAD = uniform("Conv.weight", math.sqrt(6 / (27 + 36)), 4, 3, 3, 3)
LINE = uniform("Conv.weight", 4**-0.5, 3, 2, 2), uniform("Conv.bias", 4**-0.5, 3)

NN = [
    row(b.Softmax(), [X], lambda x: softmax(x, 1), opset=[7, 13]),
    row(b.Softmax(1), [R(2, 3, 4)], lambda x: softmax(x, 1), name="middle", opset=[7, 13]),
    row(b.LogSoftmax(0), [X], lambda x: np.log(softmax(x, 0)), opset=[7, 13]),
    row(b.Conv(3, 4, 3), [IMAGE], lambda x: conv(x, K, C)),
    row(b.Conv(3, 4, 3, 2, 1, bias=False), [IMAGE], lambda x: conv(x, K, 0, 2, 1), name="stride"),
    row(b.Conv(3, 4, (3, 3), padding="same"), [IMAGE], lambda x: conv(x, K, C, 1, 1), name="same"),
    row(b.Conv(4, 6, 3, groups=2), [R(2, 4, 5, 5)], lambda x: grouped(x, *GROUPED), name="groups"),
    row(b.Conv(3, 4, 3, init="xavier"), [IMAGE], lambda x: conv(x, SPREAD, C), name="xavier"),
    row(
        b.Conv(2, 3, 2, padding=(1, 0)),
        [R(2, 2, 4)],
        lambda x: (
            np.einsum("nci,oc->noi", np.pad(x, [(0, 0), (0, 0), (1, 0)])[..., :-1], LINE[0][..., 0])
            + np.einsum("nci,oc->noi", x, LINE[0][..., 1])
            + LINE[1][:, None]
        ),
        name="line",
    ),
    row(b.MaxPool(2), [IMAGE], lambda x: windows(x, 2, 2).max((-2, -1)), order=1),
    row(
        b.MaxPool(3, 1), [IMAGE], lambda x: windows(x, 3, 1).max((-2, -1)), name="overlap", order=1
    ),
    row(
        b.MaxPool(2, 1, dilation=2),
        [IMAGE],
        lambda x: windows(x, 3, 1)[..., ::2, ::2].max((-2, -1)),
        name="dilated",
        order=1,
        opset=[10, 18],
    ),
    row(b.AveragePool(2), [IMAGE], lambda x: windows(x, 2, 2).mean((-2, -1))),
    row(
        b.AveragePool(3, 2, 1, count_include_pad=True),
        [IMAGE],
        lambda x: windows(np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]), 3, 2).mean((-2, -1)),
        name="padded",
    ),
    row(b.GlobalAveragePool(), [IMAGE], lambda x: x.mean((2, 3), keepdims=True)),
    # Nine channels: ORT's optimizer lets equal initializers of up to eight elements share memory,
    # which the running statistics then overwrite in place.
    row(
        b.BatchNorm(9, EPSILON),
        [R(4, 9, 2)],
        lambda x: normalised(x, (0, 2)),
        opset=[7, 9, 14, 18],
    ),
    row(b.LayerNorm(4, EPSILON), [R(2, 3, 4)], lambda x: normalised(x, -1), opset=[7, 17]),
    row(
        b.LayerNorm((3, 4), EPSILON, bias=False),
        [R(2, 3, 4)],
        lambda x: normalised(x, (1, 2)),
        name="two",
        opset=[7, 17],
    ),
]

FIRST = uniform("Sequential/blocks.0.weight", 3**-0.5, 3, 4)
FIRST_BIAS = uniform("Sequential/blocks.0.bias", 3**-0.5, 4)
SECOND = uniform("Sequential/blocks.2.weight", 4**-0.5, 4, 2)
SECOND_BIAS = uniform("Sequential/blocks.2.bias", 4**-0.5, 2)

BASIC = [
    row(b.Identity(), [X], lambda x: x),
    row(
        b.Sequential(b.Linear(3, 4), b.Tanh(), b.Linear(4, 2)),
        [X],
        lambda x: np.tanh(x @ FIRST + FIRST_BIAS) @ SECOND + SECOND_BIAS,
    ),
]

CASES = [
    case
    for row in [*ELEMENTWISE, *REDUCTION, *LINALG, *SHAPE, *NN, *BASIC]
    for case in row.at_each_opset()
]
for case in CASES:
    if case.opset < 9:  # the first opset in which gradients can count up to a computed size
        case.symbolic = False
