"""Running statistics that several nodes update, or read, in one training step."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import blockdsl
from blockdsl import blocks, op
from blockdsl.api import Module
from blockdsl.artifacts import LossType
from blockdsl.errors import BlockWarning, GradientError
from blockdsl.graph import current
from blockdsl.graph.control import either, repeat
from tests.engines import run
from tests.runs import Run, generate

MOMENTUM = 0.75
EPSILON = 1e-5
X = np.random.default_rng(0).normal(1, 2, size=(8, 3, 4)).astype(np.float32)
TARGET = np.zeros_like(X)


class Net(blockdsl.ForwardBlock):
    """Batch normalisation that is called as a function says, with a trained scale before it."""

    def __init__(self, calls):
        self.norm = blocks.BatchNorm(3, EPSILON, MOMENTUM)
        self.calls = calls

    def build(self, x):
        return self.calls(self, x * blockdsl.parameter("gain", "ones", (3, 1)))


def normalised(x, axes=(0, 2)):
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(var + EPSILON)


def twice(net, x):
    return net.norm(net.norm(x) * 2 + 3)


def siamese(net, x):
    return net.norm(x) - net.norm(3 * x + 1)


def thrice(net, x):
    return net.norm(x) + net.norm(x * x) + net.norm(x + 5)


def through_identity(net, x):
    """As exporters write a layer that is called twice."""
    y = net.norm(x)
    node = current().producer(y)
    names = [op.Identity(name) for name in node.input[3:5]]
    told = current().opset() >= 14
    z, *_ = op.BatchNormalization(
        3 * x + 1,
        *node.input[1:3],
        *names,
        epsilon=EPSILON,
        momentum=MOMENTUM,
        training_mode=1 if told else None,
        outputs=3 if told else 5,
    )
    return y - z


def read_before(net, x):
    y = net.norm(x)
    mean = net.norm.running_mean
    z = (x + mean.reshape(3, 1)).tanh()
    nodes = current().proto.graph.node
    current().replace_nodes(
        [*(n for n in nodes if n.op_type != "BatchNormalization")]
        + [n for n in nodes if n.op_type == "BatchNormalization"]
    )
    return y + z


def read_after(net, x):
    y = net.norm(x)
    return y + (net.norm.running_var + y.mean((0, 2))).reshape(3, 1).tanh()


def read_in_a_branch(net, x):
    y = net.norm(x)
    mean = net.norm.running_mean
    return either(y.sum() > -1e9, lambda: y + mean.reshape(3, 1), lambda: -y)


# The batches that each call normalises, in order.
CALLS = [
    (twice, lambda x: [x, normalised(x) * 2 + 3]),
    (siamese, lambda x: [x, 3 * x + 1]),
    (thrice, lambda x: [x, x * x, x + 5]),
    (through_identity, lambda x: [x, 3 * x + 1]),
    (read_before, lambda x: [x]),
    (read_after, lambda x: [x]),
    (read_in_a_branch, lambda x: [x]),
]


def opened(folder, engine, calls, opset):
    net = Net(calls)
    with blockdsl.empty_base(opset_version=opset):
        net(blockdsl.input("x", shape=("N", 3, 4)))
    model = net.to_model_proto()
    return Run(generate(folder, model, loss=LossType.MSELoss), engine)


def followed(stat, new):
    return MOMENTUM * stat + (1 - MOMENTUM) * new


@pytest.mark.parametrize("opset", [9, 13, 14, 15, 17, 21])
@pytest.mark.parametrize(("calls", "batches"), CALLS, ids=[calls.__name__ for calls, _ in CALLS])
def test_every_call_updates_in_order(tmp_path, engine, calls, batches, opset):
    # Only the last call counted on one engine; on the other both did, in the wrong order.
    run = opened(tmp_path, engine, calls, opset)
    mean, var = np.zeros(3), np.ones(3)
    for _ in range(2):
        run.gradients(X, TARGET)
        for batch in batches(X.astype(np.float64)):
            mean = followed(mean, batch.mean((0, 2)))
            var = followed(var, batch.var((0, 2)))
    values = run.values()
    np.testing.assert_allclose(values["Net/norm.running_mean"], mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(values["Net/norm.running_var"], var, rtol=1e-4, atol=1e-5)


READERS = [read_before, read_after, read_in_a_branch]


@pytest.mark.parametrize("opset", [9, 14, 17])
@pytest.mark.parametrize("calls", READERS, ids=[calls.__name__ for calls in READERS])
def test_other_nodes_read_the_statistics_of_before_the_step(tmp_path, engine, calls, opset):
    # The runtime's kernel updates them in place: readers saw the old or the new values by chance.
    run = opened(tmp_path, engine, calls, opset)
    y = normalised(X)
    values = {
        read_before: lambda mean, var: y + np.tanh(X + mean),
        read_after: lambda mean, var: y + np.tanh(var + y.mean((0, 2), keepdims=True)),
        read_in_a_branch: lambda mean, var: y + mean,
    }[calls]
    mean, var = np.zeros((3, 1)), np.ones((3, 1))
    for _ in range(3):
        loss = float(run.module(X, TARGET))
        np.testing.assert_allclose(loss, (values(mean, var) ** 2).mean(), rtol=1e-4)
        mean = followed(mean, X.mean((0, 2)).reshape(3, 1))
        var = followed(var, X.var((0, 2)).reshape(3, 1))


@pytest.mark.parametrize("calls", [siamese, read_after], ids=lambda calls: calls.__name__)
def test_evaluation_uses_the_statistics(tmp_path, engine, calls):
    run = opened(tmp_path, engine, calls, 17)
    for _ in range(3):
        run.gradients(X, TARGET)
    loss = float(run.module.eval()(X, TARGET))
    stats = {
        n.rpartition("_")[2]: v.reshape(3, 1) for n, v in run.values().items() if "running" in n
    }
    normed = lambda x: (x - stats["mean"]) / np.sqrt(stats["var"] + EPSILON)  # noqa: E731
    expected = {
        siamese: lambda: normed(X) - normed(3 * X + 1),
        read_after: lambda: (
            normed(X) + np.tanh(stats["var"] + normed(X).mean((0, 2), keepdims=True))
        ),
    }[calls]()
    np.testing.assert_allclose(loss, (expected**2).mean(), rtol=1e-4)


@pytest.mark.parametrize("calls", [siamese, read_after], ids=lambda calls: calls.__name__)
def test_a_training_model_alone_is_exported_too(tmp_path, engine, calls):
    trained = opened(tmp_path, engine, calls, 17)
    trained.gradients(X, TARGET)
    alone = Module(tmp_path / "training_model.onnx", trained.state)
    results = []
    for module in (trained.module, alone):
        (loss, *_) = trained.module.output_names()
        module.export_model_for_inferencing(tmp_path / "model.onnx", [loss])
        (feed, _) = trained.module.input_names()
        (result,) = run(onnx.load(tmp_path / "model.onnx"), {feed: X, "target": TARGET})
        results.append(result)
    np.testing.assert_allclose(*results, rtol=1e-5)


def test_computed_statistics_are_warned_of(tmp_path):
    # So the tracked statistics of an InstanceNorm are exported; they stay as they are.
    def tiled(net, x):
        ones = np.ones(3, np.float32)
        stats = [op.Tile(blockdsl.buffer(name, "ones", (1,)), [3]) for name in ("mean", "var")]
        y, *_ = op.BatchNormalization(x, ones, ones, *stats, training_mode=1, outputs=3)
        return y

    with pytest.warns(BlockWarning, match=r"computes \(Net/Tile, Net/Tile_1\): training does not"):
        opened(tmp_path, "session", tiled, 17)


BODIES = [
    lambda net, x: either(x.sum() > 0, lambda: net.norm(x), lambda: -x),
    lambda net, x: repeat(lambda i, s: [net.norm(s[0])], [x], op.Identity(np.array(2)))[0],
]


@pytest.mark.parametrize("calls", BODIES, ids=["If", "Loop"])
def test_a_body_cannot_update_statistics(tmp_path, calls):
    # They stayed as they were, without a word.
    with pytest.raises(
        GradientError, match=r"in training mode in the body of a loop or branch.*Move"
    ):
        opened(tmp_path, "session", calls, 17)
