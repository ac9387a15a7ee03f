"""Dropout drops in training before opset 12, where no input of the operator can tell it to.

Nothing was dropped there: the kernels of those opsets pass their input through.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper, parser

import blockdsl
from blockdsl import blocks
from blockdsl.api import CheckpointState, Module
from blockdsl.errors import BlockWarning, EngineError
from tests.runs import Run, forward, generate, normal, weight


class OfTheFirst(blockdsl.Block):
    """A loss of the model's first output alone."""

    def build(self, y, *others):
        return blockdsl.loss.MSELoss()(y)


def network(opset, attributes="<ratio = 0.25>", outputs="d, mask", part=None):
    part = part or f"{outputs} = Dropout{attributes}(h) dropped = Identity(d)"
    model = parser.parse_model(
        f'<ir_version: 4, opset_import: ["" : {opset}]>'
        f"g (float[N, 8] x) => (float[N, 3] y, float[N, 400] dropped) <bool yes = {{1}}> {{"
        f" h = MatMul(x, body) {part} y = MatMul(dropped, head) }}"
    )
    rng = np.random.default_rng(0)
    for name, shape in {"body": (8, 400), "head": (400, 3)}.items():
        value = rng.uniform(0.1, 0.5, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    return model


FORMS = {
    "ratio": ("<ratio = 0.25>", "d, mask", 0.25),
    "no mask": ("<ratio = 0.25>", "d", 0.25),
    "default ratio": ("", "d", 0.5),
    "ratio 0": ("<ratio = 0.0>", "d", 0.0),
    "ratio 1": ("<ratio = 1.0>", "d", 1.0),
}


@pytest.mark.parametrize("opset", [7, 8, 9, 10, 11])
@pytest.mark.parametrize("name", FORMS)
def test_a_forward_model_drops(tmp_path, engine, name, opset):
    attributes, outputs, ratio = FORMS[name]
    generate(
        tmp_path,
        network(opset, attributes, outputs),
        loss=OfTheFirst(),
        additional_output_names=["dropped"],
    )
    run = Run(tmp_path, engine)
    x, target = np.abs(normal(4, 8)), normal(4, 3)
    values = run.values()
    _, dropped = run.module(x, target)
    whole = x @ values["body"]
    kept = dropped != 0
    assert abs(1 - ratio - kept.mean()) < 0.06
    scale = 1 / (1 - ratio) if ratio < 1 else 0
    np.testing.assert_allclose(dropped, np.where(kept, whole * scale, 0), rtol=1e-4)
    error = 2 * (dropped @ values["head"] - target) / target.size
    gradients = {n: p.grad.copy() for n, p in run.state.parameters}
    np.testing.assert_allclose(gradients["head"], dropped.T @ error, rtol=1e-3, atol=1e-5)
    through = (error @ values["head"].T) * kept * scale
    np.testing.assert_allclose(gradients["body"], x.T @ through, rtol=1e-3, atol=1e-4)
    run.module.lazy_reset_grad()
    if 0 < ratio < 1:
        assert not np.array_equal(run.module(x, target)[1] != 0, kept)
    np.testing.assert_allclose(run.evaluate(x, target)[1], whole, rtol=1e-4)


def test_the_block_drops(tmp_path, engine):
    net = blocks.Dropout(0.5)
    model = forward(lambda x: net(x @ weight("w", 4, 500)), ("N", 4), opset=11)
    generate(tmp_path, model, additional_output_names=[model.graph.output[0].name])
    run = Run(tmp_path, engine)
    x, target = np.abs(normal(3, 4)) + 1, np.zeros((3, 500), np.float32)
    assert 0.4 < np.mean(run.module(x, target)[1] == 0) < 0.6
    assert np.mean(run.evaluate(x, target)[1] == 0) == 0


def test_a_body_is_warned_of(tmp_path):
    branch = (
        "dropped = If(yes) <then_branch = a () => (float[N, 400] p) { p = Dropout(h) },"
        " else_branch = b () => (float[N, 400] q) { q = Neg(h) }>"
    )
    with pytest.warns(BlockWarning, match="1 Dropout in the bodies .* drops nothing at opset 11"):
        generate(tmp_path, network(11, part=branch), loss=OfTheFirst())


def test_inference_needs_the_eval_model(tmp_path, engine):
    generate(tmp_path, network(11), loss=OfTheFirst(), additional_output_names=["dropped"])
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint", engine=engine)
    module = Module(tmp_path / "training_model.onnx", state)
    with pytest.raises(EngineError, match=r"before opset 12 .* with the eval model"):
        module.export_model_for_inferencing(tmp_path / "exported.onnx", ["y"])
