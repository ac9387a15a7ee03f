"""Products with Jacobians and Hessians equal finite differences."""

import numpy as np
import pytest
from onnx import parser

import blockdsl
from blockdsl.errors import GradientError, UnknownNameError
from blockdsl.testing import evaluate

MODEL = parser.parse_model(
    """
    <ir_version: 8, opset_import: ["" : 17]>
    g (double[N, 3] x, double[3, 2] w) => (double[N, 2] y, double z) {
      h = MatMul (x, w)
      y = Tanh (h)
      s = Sin (x)
      z = ReduceSum <keepdims = 0> (s)
    }
    """
)
ENERGY = parser.parse_model(
    """
    <ir_version: 8, opset_import: ["" : 17]>
    g (double[N, 3] x, double[3, 2] w) => (double e) {
      h = MatMul (x, w)
      t = Tanh (h)
      c = Mul (t, t)
      e = ReduceSum <keepdims = 0> (c)
    }
    """
)
STEP = 1e-5


@pytest.fixture
def point(rng):
    return {"x": rng.standard_normal((4, 3)), "w": rng.standard_normal((3, 2))}


def moved(point, tangents, step):
    return {k: v + step * tangents[f"{k}_tangent"] for k, v in point.items()}


def test_jvp_is_the_slope_and_vjp_its_transpose(point, rng):
    tangents = {f"{k}_tangent": rng.standard_normal(v.shape) for k, v in point.items()}
    forward = evaluate(MODEL)
    ahead, behind = forward(moved(point, tangents, STEP)), forward(moved(point, tangents, -STEP))
    slopes = [(a - b) / (2 * STEP) for a, b in zip(ahead, behind, strict=True)]
    pushed = evaluate(blockdsl.jvp(MODEL, wrt=["x", "w"]))({**point, **tangents})[2:]
    for found, expected in zip(pushed, slopes, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    seeds = {"y_cotangent": rng.standard_normal((4, 2)), "z_cotangent": np.array(0.7)}
    pulled = evaluate(blockdsl.vjp(MODEL, wrt=["x", "w"]))({**point, **seeds})[2:]
    across = sum(np.vdot(seed, slope) for seed, slope in zip(seeds.values(), slopes, strict=True))
    back = sum(np.vdot(g, t) for g, t in zip(pulled, tangents.values(), strict=True))
    assert back == pytest.approx(across, rel=1e-6)


def test_hvp_is_the_slope_of_the_gradient(point, rng):
    vectors = {k: rng.standard_normal(v.shape) for k, v in point.items()}
    gradient = evaluate(blockdsl.grad(ENERGY, wrt=["x", "w"]))
    ahead = gradient({k: v + STEP * vectors[k] for k, v in point.items()})[1:]
    behind = gradient({k: v - STEP * vectors[k] for k, v in point.items()})[1:]
    model = blockdsl.hvp(ENERGY, wrt=["x", "w"])
    names = [output.name for output in model.graph.output]
    assert names == ["e", "x_grad", "w_grad", "x_hvp", "w_hvp"]
    found = evaluate(model)({**point, **{f"{k}_vector": v for k, v in vectors.items()}})
    for got, a, b in zip(found[3:], ahead, behind, strict=True):
        np.testing.assert_allclose(got, (a - b) / (2 * STEP), rtol=1e-6, atol=1e-8)
    for got, expected in zip(found[1:3], gradient(point)[1:], strict=True):
        np.testing.assert_allclose(got, expected)


@pytest.mark.parametrize("product", [blockdsl.vjp, blockdsl.jvp, blockdsl.hvp])
def test_mistakes(product):
    with pytest.raises(UnknownNameError, match="'x'"):
        product(MODEL, wrt=["xx"])
    with pytest.raises(GradientError, match="names of tensors"):
        product(MODEL, wrt=[3])
    with pytest.raises(GradientError, match=r"onnx\.load"):
        product("model.onnx", wrt=["x"])
