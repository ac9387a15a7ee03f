"""Pools whose windows are far larger than the input, or would begin after its end."""

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper

import blockdsl
from blockdsl import op
from tests.engines import run
from tests.runs import Run, forward, generate, normal, weight

POOLS = ("AveragePool", "LpPool", "MaxPool")
HUGE = {"kernel_shape": [1280, 1280], "strides": [1280, 1280], "ceil_mode": 1}
WIDE = {"kernel_shape": [40, 40], "strides": [10, 7]}


def model(pool, sizes, static, opset, settings):
    dims = [2, 3, *(sizes if static else "HWD"[: len(sizes)])]
    node = helper.make_node(pool, ["x"], ["y"], **settings)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "graph", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def padding(sizes, settings):
    """The padding before and after each axis."""
    kernel, ones = settings["kernel_shape"], [1] * len(sizes)
    auto = settings.get("auto_pad", "")
    if not auto:
        pads = settings.get("pads", [0] * 2 * len(sizes))
        return list(zip(pads[: len(sizes)], pads[len(sizes) :], strict=True))
    pairs = []
    geometry = zip(sizes, kernel, settings["strides"], settings.get("dilations", ones), strict=True)
    for n, k, s, d in geometry:
        total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        less, more = total // 2, total - total // 2
        pairs.append((less, more) if auto == "SAME_UPPER" else (more, less))
    return pairs


def windows(sizes, settings):
    """For each axis the elements of the input, and those of the padded one, in each window."""
    ones = [1] * len(sizes)
    strides, dilations = (settings.get(name, ones) for name in ("strides", "dilations"))
    pads = padding(sizes, settings)
    for n, k, s, d, (b, e) in zip(
        sizes, settings["kernel_shape"], strides, dilations, pads, strict=True
    ):
        rest = n + b + e - d * (k - 1) - 1
        count = (-(-rest // s) if settings.get("ceil_mode") else rest // s) + 1
        starts = [i * s for i in range(count) if i * s < n + b]
        taps = [[i + d * j for j in range(k)] for i in starts]
        inside = [[t - b for t in window if 0 <= t - b < n] for window in taps]
        yield list(zip(inside, [sum(t < n + b + e for t in w) for w in taps], strict=True))


def pooled(pool, x, settings):
    """The pool in NumPy, and how its inputs contribute to each output."""
    boxes = list(itertools.product(*windows(x.shape[2:], settings)))
    values, slopes = [], []
    for box in boxes:
        places = (slice(None), slice(None), *np.ix_(*(inside for inside, _ in box)))
        part = x[places]
        axes = tuple(range(2, x.ndim))
        slope = np.zeros_like(x)
        if pool == "AveragePool":
            padded = settings.get("count_include_pad", 0)
            count = np.prod([c if padded else len(i) for i, c in box])
            values.append(part.sum(axes) / count)
            slope[places] = 1 / count
        elif pool == "LpPool":
            values.append(np.sqrt((part**2).sum(axes)))
            slope[places] = part / values[-1][(...,) + (None,) * len(axes)]
        else:
            values.append(part.max(axes))
            slope[places] = part == values[-1][(...,) + (None,) * len(axes)]
        slopes.append(slope)
    return np.stack(values, -1), np.stack(slopes, -1)


def gradient_agrees(pool, sizes, static, opset, settings):
    x = np.random.default_rng(len(sizes)).permutation(6 * int(np.prod(sizes)))
    x = (x.reshape(2, 3, *sizes) / x.size + 0.5).astype(np.float32)
    values, slopes = pooled(pool, x.astype(float), settings)
    cotangent = np.random.default_rng(1).normal(size=values.shape)
    product = blockdsl.vjp(model(pool, sizes, static, opset, settings), wrt=["x"], of=["y"])
    shape = [len(list(w)) for w in windows(sizes, settings)]
    feeds = {"x": x, "y_cotangent": cotangent.reshape(2, 3, *shape).astype(np.float32)}
    y, gradient = run(product, feeds)
    np.testing.assert_allclose(y.reshape(values.shape), values, rtol=1e-5)
    expected = (slopes * np.expand_dims(cotangent, tuple(range(2, x.ndim)))).sum(-1)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)
    return product


LARGE = [
    ((1, 1), HUGE),
    ((2, 2), HUGE),
    ((7, 5), HUGE),
    ((3,), {"kernel_shape": [5000], "strides": [5000], "ceil_mode": 1}),
    ((3, 4, 2), {"kernel_shape": [100] * 3, "strides": [100] * 3, "ceil_mode": 1}),
    ((50, 45), WIDE),
    ((50, 45), {**WIDE, "auto_pad": "SAME_UPPER"}),
    ((50, 45), {**WIDE, "auto_pad": "SAME_LOWER"}),
    ((50, 45), {**WIDE, "pads": [20, 3, 10, 30]}),
    ((50, 90), {**WIDE, "dilations": [1, 2], "pads": [3, 39, 3, 39]}),
]
OPSETS = {"AveragePool": [12, 18, 21], "LpPool": [18, 21], "MaxPool": [12, 18, 21]}


@pytest.mark.parametrize("static", [True, False], ids=["static", "symbolic"])
@pytest.mark.parametrize(
    ("pool", "opset", "sizes", "settings"),
    [
        (pool, opset, *case)
        for pool, opsets in OPSETS.items()
        for opset in opsets
        for case in LARGE
        if not (pool == "AveragePool" and opset < 19 and "dilations" in case[1])
    ],
    ids=str,
)
def test_windows_larger_than_the_input(pool, sizes, settings, opset, static):
    # The gradient was a convolution by the whole kernel: it asked for 134 GB of memory, and with
    # static sizes was not built within five minutes.
    product = gradient_agrees(pool, sizes, static, opset, settings)
    assert product.ByteSize() < 100_000


@pytest.mark.parametrize("static", [True, False], ids=["static", "symbolic"])
def test_padding_counts_in_large_windows(static):
    gradient_agrees(
        "AveragePool",
        (2, 2),
        static,
        18,
        {**HUGE, "count_include_pad": 1}
        | {"kernel_shape": [40, 40], "strides": [40, 40], "pads": [19, 20, 19, 18]},
    )


GEOMETRIES = [
    (n, k, s, b, e)
    for n, k, s, b, e in itertools.product((5, 6, 7), (1, 2, 3), (2, 3, 4), (0, 1), (0, 1))
    if max(b, e) < k <= n + b + e
]


@pytest.mark.parametrize(("pool", "opset"), [(p, o) for p, os in OPSETS.items() for o in os])
def test_windows_that_would_begin_after_the_input(pool, opset):
    # ONNX infers one window more than the runtime returns, which then failed in the gradient.
    for n, k, s, b, e in GEOMETRIES:
        settings = {"kernel_shape": [k], "strides": [s], "pads": [b, e], "ceil_mode": 1}
        gradient_agrees(pool, (n,), True, opset, settings)


@pytest.mark.parametrize("pool", POOLS)
def test_one_axis_of_which_the_last_window_begins_after_the_input(pool):
    settings = {"kernel_shape": [2, 2], "strides": [3, 2], "ceil_mode": 1}
    gradient_agrees(pool, (6, 5), True, 18, settings)
    gradient_agrees(pool, (6, 6), True, 18, settings)


@pytest.mark.parametrize("pool", ["AveragePool", "MaxPool"])
def test_pools_with_such_windows_train(tmp_path, engine, pool):
    def build(x):
        pooled = getattr(op, pool)(
            x @ weight("w", 6, 6), kernel_shape=[2], strides=[3], ceil_mode=1
        )
        assert pooled.shape == ("N", 3, 2)
        return pooled

    generate(tmp_path, forward(build, ("N", 3, 6)))
    Run(tmp_path, engine).train(normal(4, 3, 6), np.ones((4, 3, 2), np.float32))


def test_a_huge_pool_trains(tmp_path, engine):
    def build(x):
        h = op.Conv(x, weight("w", 8, 3, 1, 1))
        return op.AveragePool(h, **HUGE)

    generate(tmp_path, forward(build, ("N", 3, "H", "W")))
    run_ = Run(tmp_path, engine)
    for size in (1, 2):
        run_.train(normal(4, 3, size, size), np.zeros((4, 8, 1, 1), np.float32))
