"""Operators that are taken apart before they are differentiated."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, parser

import blockdsl
from blockdsl import op
from blockdsl.errors import GradientError, GraphError
from blockdsl.gradient.composites import composite
from blockdsl.graph import current
from blockdsl.testing import assert_close, check_gradients
from tests.engines import loads_opset, run, without_layouts
from tests.gradient_models import with_gradients
from tests.zoo import ENTRIES

MICROSOFT = op.microsoft


def gradient_of(build, *shapes, dtype=np.float32):
    """The gradient model of what is built of some inputs, by all that are floats."""
    with blockdsl.empty_base() as handle:
        inputs = [blockdsl.input(f"x{i}", dtype, shape) for i, shape in enumerate(shapes)]
        made = build(*inputs)
        current().set_outputs([(made * made).sum()])
    return blockdsl.grad(handle.model, [str(x) for x in inputs])


QUERY = (2, 3, 4)


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "names"),
    [
        (
            "MultiHeadAttention",
            [None] * 7 + [np.int32(0)],
            {"num_heads": 2},
            "past_sequence_length",
        ),
        ("MultiHeadAttention", [], {"num_heads": 2, "outputs": 4}, "MultiHeadAttention.qk"),
        (
            "GroupQueryAttention",
            [None, None, None, None, np.zeros(2, np.int32), np.int32(3)],
            {"num_heads": 2, "kv_num_heads": 1, "qk_output": 1},
            "'qk_output' has no gradient",
        ),
    ],
)
def test_what_serves_inference_only_says_so(operator, inputs, attributes, names):
    def build(x):
        if operator == "MultiHeadAttention":
            inputs[:2] = [x, x]
        made = getattr(MICROSOFT, operator)(x, *inputs, **attributes)
        return made[0] if isinstance(made, tuple) else made

    with pytest.raises(GradientError, match=names):
        gradient_of(build, QUERY)


def test_a_mask_that_may_mean_two_things():
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", np.float32, ("batch", 3, 4))
        mask = blockdsl.input("mask", np.int32, ("lengths",))
        y = MICROSOFT.MultiHeadAttention(x, x, x, None, mask, num_heads=2)
        current().set_outputs([y.sum()])
    with pytest.raises(GradientError, match=r"'mask' of int32\[lengths\] may mean several things"):
        blockdsl.grad(handle.model, "x")


def test_an_attribute_of_a_newer_runtime():
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", np.float32, (3, 3))
        node = helper.make_node("FusedGemm", [x, x], ["y"], domain="com.microsoft", sparsity=2)
        handle.model.graph.node.append(node)
        current().sync()
        current().set_outputs([current().value("y").sum()])
    with pytest.raises(GradientError, match="'sparsity', which is not known"):
        blockdsl.grad(handle.model, "x")


def test_shapes_that_do_not_fit():
    with blockdsl.empty_base():
        x = blockdsl.input("x", np.float32, (2, 3))
        with pytest.raises(
            GraphError, match=r"FusedGemm cannot take these inputs \(x: float32\[2, 3"
        ):
            MICROSOFT.FusedGemm(x, x, activation="Relu")


def test_a_composite_must_fit_its_operator():
    with pytest.raises(GradientError, match=r"takes \(x; \), and the operator has \(A, B, C; "):

        @composite("FusedGemm", domain="com.microsoft")
        def wrong(x):
            return x


def test_a_function_of_the_model_comes_first():
    model = parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[2, 2] x) => (float loss) {
      y = com.microsoft.FusedGemm <activation = "Relu"> (x, x)
      loss = ReduceSum <keepdims = 0> (y)
    }
    <domain: "com.microsoft", opset_import: ["" : 17]>
    FusedGemm <activation> (a, b) => (c) {
      c = Mul (a, b)
    }""")
    found = run(blockdsl.grad(model, "x"), {"x": np.full((2, 2), -3, np.float32)})
    assert_close(found[1], np.full((2, 2), -6, np.float32))


def test_inside_a_loop():
    model = parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[2, 3] x, float[3, 3] w, int64 steps) => (float[2, 3] y) {
      always = Constant <value = bool {1}> ()
      y = Loop (steps, always, x) <body = step (int64 i, bool go, float[2, 3] s)
          => (bool still, float[2, 3] t) {
        still = Identity (go)
        t = com.microsoft.FusedGemm <activation = "Tanh"> (s, w)
      }>
    }""")
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(2, 3)), "w": rng.normal(size=(3, 3)), "steps": np.array(3)}
    check_gradients(model, feeds)


FUSED = {"lenet", "mlp", "dscnn_se", "groupnorm_cnn", "hf_bert", "hf_gpt2", "hf_llama", "hf_t5"}


@pytest.mark.parametrize(
    "entry", [e for e in ENTRIES if e.name.split(".")[0] in FUSED], ids=lambda e: e.name
)
def test_optimised_models_have_the_gradients_of_their_originals(tmp_path, entry):
    if not loads_opset(entry.opset):
        pytest.skip(f"the runtime does not load opset {entry.opset}")
    options = without_layouts()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(
        entry.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    models = entry.model, onnx.load(options.optimized_model_filepath)
    assert any(node.domain == "com.microsoft" for node in models[1].graph.node)
    uses = [[n for node in model.graph.node for n in node.input] for model in models]
    # An initializer that was transposed or merged with another is not all there any more.
    wrt = [name for name in entry.parameters if 0 < uses[0].count(name) == uses[1].count(name)]
    outputs = [o.name for o in entry.model.graph.output]
    feeds = {k: v for k, v in entry.feeds(0).items() if not k.startswith("label.")}
    rng = np.random.default_rng(0)
    for output, value in zip(outputs, run(entry.model, feeds), strict=True):
        feeds[f"{output}_seed"] = rng.standard_normal(value.shape).astype(np.float32)
    expected, found = (run(with_gradients(model, outputs, wrt), feeds) for model in models)
    largest = max(np.abs(value).max() for value in expected[: len(wrt)])
    assert len(wrt) > 2
    for parameter, got, value in zip(wrt, found, expected, strict=False):
        assert np.abs(got - value).max() <= 1e-4 * max(np.abs(value).max(), 1e-2 * largest), (
            parameter
        )
