"""What a model returns is the caller's: it shares no memory with what was fed, nor with the state.

The runtime returns an input that is an output as the very memory that was fed: results changed when
a loader refilled its batch, and showed memory that had been freed.
"""

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import blockdsl
from blockdsl.artifacts import OptimType, generate_artifacts
from blockdsl.backend import prepare
from tests.engines import loads_opset
from tests.runs import Run

HEADER = '<ir_version: 8, opset_import: ["" : 17]> '
OUTPUTS = ["y", "m", "w", "identity", "view", "branch", "shape"]


class OfTheFirst(blockdsl.Block):
    """A loss of the model's first output alone."""

    def build(self, y, *others):
        return blockdsl.loss.MSELoss()(y)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model that returns its mask and its weight, by itself and through operators that copy."""
    model = parser.parse_model(
        HEADER + "g (float[N, 4] x, float[N, 4] m) => (float[N, 3] y, float[N, 4] m,"
        " float[4, 3] w, float[N, 4] identity, float[1, N, 4] view, float[N, 4] branch,"
        " float[2] shape) <float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3},"
        " float[2] shape = {1, 2}> {"
        " masked = Mul(x, m)  y = MatMul(masked, w)  identity = Identity(m)"
        " zero = Constant<value_ints = [0]>()  view = Unsqueeze(m, zero)"
        " one = Constant<value_int = 1>()  yes = Cast<to = 9>(one)"
        " branch = If(yes) <then_branch = t () => (float[N, 4] a) { a = Identity(m) },"
        " else_branch = e () => (float[N, 4] b) { b = Neg(m) }> }"
    )
    folder = tmp_path_factory.mktemp("returned")
    generate_artifacts(
        model,
        loss=OfTheFirst(),
        optimizer=OptimType.AdamW,
        artifact_directory=folder,
        additional_output_names=OUTPUTS,
    )
    return folder


@pytest.mark.parametrize("kind", ["arrays", "OrtValues"])
@pytest.mark.parametrize("training", [True, False])
def test_results_outlive_what_was_fed_and_the_step(files, engine, training, kind):
    run = Run(files, engine)
    run.module.train()
    run.module(*_batch())  # gradients for the steps below
    run.module.train(training)
    feeds = _batch()
    fed = feeds
    if kind == "OrtValues":
        fed = [onnxruntime.OrtValue.ortvalue_from_numpy(feed) for feed in feeds]
    results = dict(zip(run.module.output_names(), run.module(*fed), strict=True))
    before = {name: _read(result).copy() for name, result in results.items()}
    np.testing.assert_array_equal(before["m"], feeds[1])
    np.testing.assert_array_equal(before["w"], run.values()["w"])
    for feed in feeds:
        feed[:] = 7
    run.optimizer.step()
    run.state.parameters["w"].data[:] += 1
    run.module(*fed)
    for name, result in results.items():
        np.testing.assert_array_equal(_read(result), before[name], err_msg=name)


def test_writing_into_a_result_changes_nothing(files, engine):
    run = Run(files, engine)
    feeds, weight = _batch(), run.values()["w"]
    first = run.module(*feeds)
    loss = float(first[0])
    for result in first:
        result[...] = 9
    for feed, fresh in zip(feeds, _batch(), strict=True):
        np.testing.assert_array_equal(feed, fresh)
    np.testing.assert_array_equal(run.values()["w"], weight)
    assert float(run.module(*feeds)[0]) == loss


ALONE = {
    "an input": ("float[4] x", "float[4] x", "z = Neg(x)"),
    "half precision": ("float16[4] x", "float16[4] x", "z = Neg(x)"),
    "bfloat16": ("bfloat16[4] x", "bfloat16[4] x", "z = Identity(x)"),
    "beside bfloat16": ("float[4] x, bfloat16[4] b", "float[4] x, bfloat16[4] b", "z = Neg(x)"),
    "integers": ("int64[4] x", "int64[4] x", "z = Neg(x)"),
    "strings": ("string[4] x", "string[4] x", "z = Identity(x)"),
    "Identity": ("float[4] x", "float[4] y", "y = Identity(x)"),
    "Reshape": (
        "float[4] x",
        "float[2, 2] y",
        "s = Shape(x) y = Reshape(x, s)",
    ),
    "Dropout": ("float[4] x", "float[4] y", "y = Dropout(x)"),
    "Cast": ("float[4] x", "float[4] y", "y = Cast<to = 1>(x)"),
    "a sequence": ("seq(float[4]) x", "seq(float[4]) x", "z = SequenceLength(x)"),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_prepared_model_returns_arrays_of_its_own(name):
    inputs, outputs, text = ALONE[name]
    model = parser.parse_model(f"{HEADER} g ({inputs}) => ({outputs}) {{ {text} }}")
    rep = prepare(model)
    feeds = {value.name: _some(value.type) for value in model.graph.input}
    kept = {key: _copies(feed) for key, feed in feeds.items()}
    results = rep.run(feeds)
    expected = [_copies(result) for result in results]
    for result in results:
        for array in result if isinstance(result, list) else [result]:
            array[:] = array[::-1].copy()
    for key, feed in feeds.items():
        _assert_same(feed, kept[key])
    for result, value in zip(rep.run(feeds), expected, strict=True):
        _assert_same(result, value)


@pytest.mark.parametrize("opset", [14, 15, 17, 22])
def test_statistics_that_are_fed_are_left_alone(opset):
    """The runtime writes new statistics over the old ones where they are no outputs."""
    if not loads_opset(opset):
        pytest.skip("the runtime does not know the opset")
    rep = prepare(_normalization(opset, "float[4, 3] x, float[3] m, float[3] v", ""))
    x, m, v = np.ones((4, 3), np.float32), np.zeros(3, np.float32), np.ones(3, np.float32)
    outputs = rep.run([x, m, v])
    assert len(outputs) == 2
    np.testing.assert_allclose(outputs[1], -0.1, rtol=1e-6)
    np.testing.assert_array_equal([m, v], [np.zeros(3), np.ones(3)])


def test_statistics_that_are_constants_are_the_same_in_every_run():
    constants = ", float[3] m = {0, 0, 0}, float[3] v = {1, 1, 1}"
    rep = prepare(_normalization(17, "float[4, 3] x", constants))
    for _ in range(3):
        _, negated = rep.run([np.ones((4, 3), np.float32)])
        np.testing.assert_allclose(negated, -0.1, rtol=1e-6)


def _normalization(opset, inputs, constants):
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g ({inputs}) => (float[4, 3] y, float[3] n)'
        f" <float[3] s = {{1, 1, 1}}, float[3] b = {{1, 1, 1}}{constants}> {{"
        " y, m2, v2 = BatchNormalization<training_mode = 1>(x, s, b, m, v)  n = Neg(m2) }"
    )


def _batch():
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    return [x, np.ones((2, 4), np.float32), np.zeros((2, 3), np.float32)]


def _read(result):
    return result if isinstance(result, np.ndarray) else result.numpy()


def _some(kind):
    if kind.HasField("sequence_type"):
        return [np.arange(4, dtype=np.float32), np.arange(4, 8, dtype=np.float32)]
    dtype = blockdsl.graph.tensor.np_dtype(kind.tensor_type.elem_type)
    return np.array(list("abcd"), object) if dtype.kind == "O" else np.arange(4).astype(dtype)


def _copies(value):
    return [item.copy() for item in value] if isinstance(value, list) else value.copy()


def _assert_same(value, expected):
    np.testing.assert_array_equal(np.asarray(value), np.asarray(expected))
