"""Parameters and buffers that a block of one's own makes, and tied weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import blockdsl
from blockdsl import artifacts, blocks
from blockdsl.api import CheckpointState
from blockdsl.blocks import Linear
from blockdsl.errors import BlockError, OpError
from tests.blocks.test_ownership import arrays, weights, x_of


class Tied(blockdsl.Block):
    """The scores of all words, by the table that looks them up."""

    def __init__(self, embedding):
        self.embedding = embedding

    def build(self, hidden):
        return hidden @ self.embedding.weight.transpose()


class Language(blockdsl.ForwardBlock):
    def __init__(self):
        self.embedding = blocks.Embedding(10, 4)
        self.head = Tied(self.embedding)

    def build(self, ids):
        return self.head(self.embedding(ids) * blockdsl.parameter("gain", "ones", (4,)))


def test_tied_weights_train_as_one(tmp_path, engine):
    language = Language()
    with blockdsl.empty_base() as handle:
        language(blockdsl.input("ids", "int64", ("N",)))
    assert weights(handle) == ["Language/embedding.weight", "Language.gain"]
    artifacts.generate_artifacts(
        language.to_model_proto(),
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.SGD,
        artifact_directory=tmp_path,
    )
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint", engine=engine)
    assert sorted(name for name, _ in state.parameters) == sorted(weights(handle))


INITS = [
    ("zeros", np.zeros((4, 2))),
    ("ones", np.ones((4, 2))),
    (0.5, np.full((4, 2), 0.5)),
    (np.arange(8.0).reshape(4, 2), np.arange(8.0).reshape(4, 2)),
    (lambda rng, shape: np.full(shape, shape[0]), np.full((4, 2), 4.0)),
]


@pytest.mark.parametrize(
    ("init", "expected"), INITS, ids=["zeros", "ones", "number", "array", "function"]
)
@pytest.mark.parametrize("make", [blockdsl.parameter, blockdsl.buffer])
def test_first_values(make, init, expected):
    with blockdsl.empty_base() as handle:
        value = make("w", init, (4, 2), "float32")
        assert make("w", init, (4, 2), "float32") == value == "w"
    np.testing.assert_array_equal(arrays(handle.model)["w"], expected.astype("float32"))


@pytest.mark.parametrize(("init", "limit"), [("kaiming", 4**-0.5), ("xavier", 1.0)])
def test_drawn_values(init, limit):
    class Own(blockdsl.Block):
        def __init__(self, **settings):
            self.settings = settings

        def build(self):
            return blockdsl.parameter("w", init, (4, 2), **self.settings)

    def drawn(**settings):
        with blockdsl.empty_base() as handle:
            Own(**settings)()
        return arrays(handle.model)["Own.w"]

    assert drawn().dtype == np.float32
    assert abs(drawn()).max() <= limit
    assert (drawn() == drawn(seed=0)).all()
    assert (drawn() != drawn(seed=1)).any()


WRONG = [
    (lambda: blockdsl.parameter("w", "zeros"), "must be a tuple of known sizes, got None"),
    (lambda: blockdsl.parameter("w", "zeros", ("N", 2)), r"known sizes, got \('N', 2\)"),
    (
        lambda: blockdsl.parameter("w", np.ones(3), (4,)),
        r"must have the shape \(4,\), got an array",
    ),
    (lambda: blockdsl.parameter("w", "kaiming", (4,)), "needs a shape of two axes or more"),
    (lambda: blockdsl.parameter("w", "he", (4, 2)), "must be 'kaiming' or 'xavier', got 'he'"),
    (lambda: blockdsl.parameter("w", np.arange(3)), "use blockdsl.buffer for others"),
    (lambda: blockdsl.parameter("w", lambda rng, shape: [1.0], (4,)), r"return the shape \(4,\)"),
    (lambda: [blockdsl.parameter("w", "zeros", (n,)) for n in (3, 4)], r"'w' is float32\[3\] in"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_what_is_refused(make, message):
    with blockdsl.empty_base(), pytest.raises(OpError, match=message):
        make()


def test_an_attribute_that_a_block_has_not():
    layer = Linear(4, 4)
    with pytest.raises(BlockError, match=r"^'Linear' object has no attribute 'weight'$"):
        _ = layer.weight
    with blockdsl.empty_base():
        with pytest.raises(
            AttributeError, match="it has not been called in the model that is open"
        ):
            _ = layer.weight
        layer(x_of(4))
        assert layer.weight.shape == (4, 4)
        assert layer.bias is True
        with pytest.raises(
            AttributeError, match=r"'Linear' no such parameter so far\. Did you mean 'weight'"
        ):
            _ = layer.weights


class Marked(blockdsl.ForwardBlock):
    """A buffer in the slot of a weight, and parameters where exporters have constants."""

    def build(self, x):
        x = (x - blockdsl.parameter("shift", "zeros", (4,))) * blockdsl.parameter("scale", 1.0)
        return x @ blockdsl.buffer("table", "xavier", (4, 2))


@pytest.mark.parametrize("as_file", [False, True])
def test_what_a_block_makes_it_as_decides_what_is_trained(tmp_path, as_file):
    # In a file, what a tensor meets decided: the buffer trained, and the scale did not.
    block = Marked()
    with blockdsl.empty_base():
        block(x_of(4))
    model = block.to_model_proto()
    if as_file:
        onnx.save(model, tmp_path / "model.onnx")
        model = tmp_path / "model.onnx"
    settings = {"loss": artifacts.LossType.MSELoss, "artifact_directory": tmp_path}
    artifacts.generate_artifacts(model, optimizer=artifacts.OptimType.SGD, **settings)
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    assert sorted(name for name, _ in state.parameters) == ["Marked.scale", "Marked.shift"]
    artifacts.generate_artifacts(model, requires_grad=["Marked.table"], **settings)
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    assert [name for name, p in state.parameters if p.requires_grad] == ["Marked.table"]
