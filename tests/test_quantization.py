"""Gradients through quantization: they exist in float32 only, and rounding has no differences."""

import numpy as np
import pytest

import blockdsl
from blockdsl import op
from blockdsl.gradient import build_gradients
from blockdsl.testing import assert_close
from tests.engines import loads_opset, run

LIMITS = {np.uint8: (0, 255), np.int8: (-128, 127)}

GRANULARITIES = {
    "tensor": ((), {}, 10),
    "axis": ((3,), {"axis": 1}, 13),
    "first axis": ((4,), {"axis": 0}, 13),
    "blocks": ((2, 3), {"axis": 0, "block_size": 3}, 21),
}


def repeated(scale, granularity):
    """The scale of every element of a 4 x 3 tensor."""
    if granularity == "blocks":
        return np.repeat(scale, 3, axis=0)[:4]
    shape = {"tensor": (1, 1), "axis": (1, 3), "first axis": (4, 1)}[granularity]
    return np.broadcast_to(scale.reshape(shape), (4, 3))


def collected(terms, granularity):
    """What `repeated` is the transpose of."""
    if granularity == "blocks":
        return np.stack([terms[:3].sum(0), terms[3:].sum(0)])
    return terms.sum(axis={"tensor": (0, 1), "axis": 0, "first axis": 1}[granularity])


def gradients(build, feeds, opset):
    """The outputs and gradients by all floats of a model whose output gets the cotangent `seed`."""
    if not loads_opset(opset):
        pytest.skip(f"the runtime does not load opset {opset}")
    with blockdsl.empty_base(opset_version=opset) as handle:
        inputs = {
            name: blockdsl.input(name, dtype=value.dtype, shape=value.shape)
            for name, value in feeds.items()
        }
        seed = inputs.pop("seed")
        graph = seed.graph
        y = build(**inputs)
        wrt = [v for v in inputs.values() if v.type.is_float]
        found = build_gradients(graph, (y * seed).sum(), wrt)
        graph.set_outputs([y, *found.values()])
        graph.check()
    return run(handle.model, feeds)


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_fake_quantization(granularity, dtype, rng):
    shape, settings, opset = GRANULARITIES[granularity]
    scale = rng.uniform(0.01, 0.1, shape).astype(np.float32)
    zero_point = rng.integers(3, 9, shape).astype(dtype)
    feeds = {
        "x": rng.uniform(-12, 12, (4, 3)).astype(np.float32),
        "scale": scale,
        "seed": rng.standard_normal((4, 3)).astype(np.float32),
    }

    def build(x, scale):
        quantized = op.QuantizeLinear(x, scale, zero_point, **settings)
        return op.DequantizeLinear(quantized, scale, zero_point, **settings)

    y, dx, dscale = gradients(build, feeds, opset)
    s, z = repeated(scale, granularity), repeated(zero_point.astype(np.float32), granularity)
    low, high = LIMITS[dtype]
    rounded = np.round(feeds["x"] / s) + z
    inside = (rounded >= low) & (rounded <= high)
    steps = np.clip(rounded, low, high) - z
    assert 0 < inside.sum() < inside.size
    assert_close(y, steps * s)
    assert_close(dx, np.where(inside, feeds["seed"], 0))
    slope = steps - np.where(inside, feeds["x"] / s, 0)
    assert_close(dscale, collected(feeds["seed"] * slope, granularity), gradient=True)


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_scale_of_a_stored_weight(granularity, rng):
    shape, settings, opset = GRANULARITIES[granularity]
    weight = rng.integers(-128, 128, (4, 3)).astype(np.int8)
    feeds = {
        "scale": rng.uniform(0.01, 0.1, shape).astype(np.float32),
        "seed": rng.standard_normal((4, 3)).astype(np.float32),
    }
    _, dscale = gradients(
        lambda scale: op.DequantizeLinear(weight, scale, **settings), feeds, opset
    )
    assert_close(dscale, collected(feeds["seed"] * weight, granularity), gradient=True)


def test_dynamic_quantization(rng):
    feeds = {
        "x": rng.uniform(-2, 3, (4, 5)).astype(np.float32),
        "seed": rng.standard_normal((4, 5)).astype(np.float32),
    }
    y, dx = gradients(lambda x: op.DequantizeLinear(*op.DynamicQuantizeLinear(x)), feeds, 13)
    x, seed = feeds["x"], feeds["seed"]
    scale = (x.max() - x.min()) / 255
    assert_close(y, x, rtol=0.01)
    # The scale follows the extreme elements: what rounding moved is what it adds to them.
    extra = (seed * (y - x)).sum() / scale / 255
    expected = seed + extra * ((x == x.max()).astype(np.float32) - (x == x.min()))
    assert_close(dx, expected, gradient=True)
