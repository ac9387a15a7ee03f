"""Training, evaluating, saving and resuming in plain inference sessions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from blockdsl.backend import checkpoint as codec
from blockdsl.backend.buffer import to_array
from blockdsl.backend.checkpoint import Checkpoint
from blockdsl.backend.providers import Device
from blockdsl.backend.session import SessionModule, SessionState, load_state, open_stepper
from blockdsl.errors import (
    ArtifactError,
    EngineError,
    FeedError,
    ModelFileError,
    StateError,
    UnknownParameterError,
)
from tests import session_models
from tests.session_models import Reference, batch


class ElsewhereDevice(Device):
    """Stands for a device whose memory NumPy does not see; it lies on the CPU all the same."""

    is_host = False

    def providers(self):
        return ["CPUExecutionProvider"]


DEVICES = [Device(), ElsewhereDevice()]


@pytest.fixture
def files(tmp_path):
    return session_models.write(tmp_path)


def open_all(files, device="cpu"):
    state = load_state(files.checkpoint)
    module = SessionModule(state, files.training, files.eval, device)
    return state, module, open_stepper(module, files.optimizer)


def arrays(module):
    return {p.name: np.array(p.data) for p in module.parameters(trainable_only=False)}


@pytest.mark.parametrize("device", DEVICES, ids=["cpu", "elsewhere"])
@pytest.mark.parametrize(
    ("float_type", "dtype", "tolerance"),
    [("float", np.float32, 1e-5), ("double", np.float64, 1e-12), ("float16", np.float16, 2e-2)],
)
def test_trajectory(tmp_path, float_type, dtype, tolerance, device):
    files = session_models.write(tmp_path, float_type, dtype)
    state, module, optimizer = open_all(files, device)
    reference = Reference.of(session_models.checkpoint(dtype=dtype))
    optimizer.learning_rate = 0.1
    for step in range(5):
        for part in range(1 + step % 3):  # with and without accumulation
            inputs = batch(10 * step + part, dtype=dtype)
            loss = to_array(module.train_step(inputs)[0])
            wanted = reference.train(*map(np.float64, inputs), reset=part == 0)
            np.testing.assert_allclose(loss, wanted, rtol=tolerance)
            for name, gradient in reference.grads.items():
                given = state.parameter(name).grad
                assert given.dtype == dtype
                np.testing.assert_allclose(given, gradient, rtol=tolerance, atol=tolerance)
        optimizer.step()
        reference.step(np.float32(0.1))
        module.lazy_reset_grad()
        values = arrays(module)
        for name in ("weight", "fc.bias", "running"):
            wanted = getattr(reference, name.removeprefix("fc."))
            np.testing.assert_allclose(values[name], wanted, rtol=tolerance, atol=tolerance)
    assert optimizer.step_count == 5


def test_names_and_sizes(files):
    _, module, _ = open_all(files)
    assert module.input_names(training=True) == ["x", "target"]
    assert module.input_names(training=False) == ["x", "target"]
    assert module.output_names(training=True) == ["loss", "y"]
    assert module.output_names(training=False) == ["loss", "centred"]
    names = [p.name for p in module.parameters(trainable_only=False)]
    assert names == ["weight", "fc.bias", "scale", "running"]
    assert [p.name for p in module.parameters(trainable_only=True)] == ["weight", "fc.bias"]
    assert module.parameters_size(trainable_only=False) == 12
    assert module.parameters_size(trainable_only=True) == 8


@pytest.mark.parametrize("count", [1, 2, 3])
def test_gradients_add_up_until_they_are_reset(files, count):
    state, module, _ = open_all(files)
    module.train_step(batch())
    once = state.parameter("weight").grad.copy()
    module.lazy_reset_grad()
    np.testing.assert_array_equal(state.parameter("weight").grad, once)
    for _ in range(count):
        module.train_step(batch())
    np.testing.assert_array_equal(state.parameter("weight").grad, np.float32(count) * once)
    module.lazy_reset_grad()
    module.train_step(batch())
    np.testing.assert_array_equal(state.parameter("weight").grad, once)


def test_a_session_that_accumulates_is_made_when_needed(files):
    _, module, _ = open_all(files)
    for _ in range(3):
        module.train_step(batch())
        module.lazy_reset_grad()
    assert module._accumulating is None


def test_evaluation_and_steps_leave_the_gradients(files):
    state, module, optimizer = open_all(files)
    module.train_step(batch())
    gradient = state.parameter("weight").grad.copy()
    module.eval_step(batch(5))
    optimizer.step()
    np.testing.assert_array_equal(state.parameter("weight").grad, gradient)


def test_statistics_move_in_training_only(files):
    state, module, _ = open_all(files)
    running = state.parameter("running").data
    module.eval_step(batch())
    assert not running.any()
    module.train_step(batch())
    assert running.all()
    loss, centred = map(to_array, module.eval_step(batch()))
    values = arrays(module)
    y = (batch()[0] @ values["weight"] + values["fc.bias"]) * values["scale"]
    np.testing.assert_allclose(centred, y - running, rtol=1e-5)
    np.testing.assert_allclose(loss, ((y - batch()[1]) ** 2).mean(), rtol=1e-5)


def test_parameters_are_views_of_the_training_memory(files):
    state = load_state(files.checkpoint)
    parameter = state.parameter("weight")
    assert parameter.grad is None
    module = SessionModule(state, files.training)
    optimizer = open_stepper(module, files.optimizer)
    assert state.parameter("scale").grad is None
    assert not parameter.grad.any()
    data, gradient = parameter.data, parameter.grad
    before = data.copy()
    loss = to_array(module.train_step(batch())[0])
    assert gradient.any()
    optimizer.step()
    assert (data != before).any()

    data[:] = before  # writing into the view is training on from there
    state.parameter("fc.bias").data = session_models.checkpoint().trainable["fc.bias"]
    module.lazy_reset_grad()
    assert to_array(module.train_step(batch())[0]) == loss
    gradient[:] = 0
    values = arrays(module)
    optimizer.step()
    momentum = state.optimizer().slots["weight"]["momentum0"].array
    np.testing.assert_allclose(data, values["weight"] - np.float32(0.001) / 2 * momentum, rtol=1e-6)


def test_parameters_refuse_what_does_not_fit(files):
    state, _, _ = open_all(files)
    weight = state.parameter("weight")
    with pytest.raises(StateError, match=r"shape mismatch: 'weight' is float32\[3, 2\].*\[2, 3\]"):
        weight.data = np.zeros((2, 3), np.float32)
    with pytest.raises(StateError, match=r"type mismatch: 'weight' is float32.*float64\[3, 2\]"):
        weight.data = np.zeros((3, 2))
    with pytest.raises(UnknownParameterError, match=r"Parameter wieght not found.*'weight'"):
        state.parameter("wieght")


def test_contiguous_parameters(files):
    _, module, _ = open_all(files)
    flat = module.read_parameters(trainable_only=False)
    wanted = np.concatenate([a.ravel() for a in arrays(module).values()])
    np.testing.assert_array_equal(flat, wanted)
    module.train_step(batch())
    module.write_parameters(np.arange(8, dtype=np.float32), trainable_only=True)
    np.testing.assert_array_equal(module.read_parameters(trainable_only=True), np.arange(8))
    module.write_parameters(flat, trainable_only=False)
    np.testing.assert_array_equal(module.read_parameters(trainable_only=False), wanted)
    with pytest.raises(StateError, match=r"size incorrect\. Expected:8, Actual:12"):
        module.write_parameters(flat, trainable_only=True)


@pytest.mark.parametrize("training", [True, False])
def test_results_are_the_users_own(files, training):
    _, module, _ = open_all(files)
    step = module.train_step if training else module.eval_step
    first = [to_array(value) for value in step(batch(1))]
    kept = [array.copy() for array in first]
    step(batch(2))
    for array, copy in zip(first, kept, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_ort_values_in_and_out(files):
    _, module, _ = open_all(files)
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in batch()]
    by_value = module.train_step(values)
    module.lazy_reset_grad()
    mixed = module.train_step([values[0], batch()[1]])
    for left, right in zip(by_value, mixed, strict=True):
        assert isinstance(left, onnxruntime.OrtValue)
        np.testing.assert_array_equal(to_array(left), to_array(right))


def test_any_batch_size(files):
    _, module, _ = open_all(files)
    for size in (4, 1, 7):
        assert to_array(module.train_step(batch(size=size))[1]).shape == (size, 2)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (lambda: batch()[:1], r"takes 2 inputs .*x: float32\[batch, 3\].* was given 1"),
        (lambda: batch(dtype=np.float64), r"Input 'x'.*float32\[batch, 3\].*float64\[4, 3\]"),
        (lambda: [batch()[0][0], batch()[1]], r"Input 'x'.*of rank 1 instead of 2"),
        (lambda: batch()[::-1], r"Input 'x'.*axis 1 must be 3, not 2"),
        (lambda: [batch(size=4)[0], batch(size=5)[1]], r"'target'.*'batch', which is 4.*'x'"),
    ],
)
def test_wrong_feeds_are_named_and_change_nothing(files, inputs, message):
    state, module, _ = open_all(files)
    module.train_step(batch())
    before = [state.parameter("weight").grad.copy(), state.parameter("running").data.copy()]
    for step in (module.train_step, module.eval_step):
        with pytest.raises(FeedError, match=message):
            step(inputs())
    after = [state.parameter("weight").grad, state.parameter("running").data]
    for left, right in zip(before, after, strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_smaller_last_batch_of_a_model_with_a_fixed_batch(files):
    text = session_models.TRAINING.replace("FLOAT[batch, ", "FLOAT[4, ")
    onnx.save(session_models.model(text), files.training)
    _, module, _ = open_all(files)
    module.train_step(batch())
    with pytest.raises(FeedError, match=r"'x'.*float32\[4, 3\].*float32\[3, 3\].*dim_param"):
        module.train_step(batch(size=3))


def test_modules_share_a_state(files):
    state = load_state(files.checkpoint)
    one = SessionModule(state, files.training)
    two = SessionModule(state, files.training, files.eval)
    one.train_step(batch())
    assert state.parameter("weight").grad.any()
    np.testing.assert_array_equal(
        one.read_parameters(trainable_only=False), two.read_parameters(trainable_only=False)
    )
    open_stepper(one, files.optimizer).learning_rate = 0.5
    assert open_stepper(two, files.optimizer).learning_rate == 0.5
    with pytest.raises(EngineError, match="state lies on 'cpu'"):
        SessionModule(state, files.training, device=ElsewhereDevice())


@pytest.mark.parametrize("device", DEVICES, ids=["cpu", "elsewhere"])
def test_resumed_training_is_the_same_bit_for_bit(files, device):
    state, module, optimizer = open_all(files, device)
    optimizer.learning_rate = 0.3

    def train(module, optimizer, steps):
        losses = []
        for seed in steps:
            module.lazy_reset_grad()
            losses.append(to_array(module.train_step(batch(seed))[0]))
            optimizer.step()
        return losses

    train(module, optimizer, range(3))
    state.properties["epoch"] = 3
    path = files.folder / "resumed"
    state.save(path, include_optimizer_state=True)
    losses = train(module, optimizer, range(3, 6))

    files = session_models.Artifacts(
        files.folder, files.training, files.eval, files.optimizer, path
    )
    resumed_state, resumed, resumed_optimizer = open_all(files, device)
    assert resumed_state.properties == {"epoch": 3}
    assert resumed_optimizer.learning_rate == float(np.float32(0.3))
    assert resumed_optimizer.step_count == 3
    assert train(resumed, resumed_optimizer, range(3, 6)) == losses
    for name, value in arrays(module).items():
        np.testing.assert_array_equal(arrays(resumed)[name], value)


def test_saving_without_the_optimizer_begins_afresh(files):
    state, module, optimizer = open_all(files)
    module.train_step(batch())
    optimizer.step()
    state.save(files.checkpoint, include_optimizer_state=False)
    saved = codec.load(files.checkpoint)
    assert saved.groups == {}
    assert list(saved.trainable) == ["fc.bias", "weight"]
    assert list(saved.frozen) == ["running", "scale"]
    assert open_all(files)[2].step_count == 0


def test_nominal_state(files):
    complete = codec.load(files.checkpoint)
    flat = np.concatenate(
        [(complete.trainable | complete.frozen)[n].ravel() for n in ("weight", "fc.bias")]
        + [complete.frozen[n].ravel() for n in ("scale", "running")]
    )
    codec.save(Checkpoint(complete.trainable, complete.frozen, nominal=True), files.checkpoint)
    state, module, optimizer = open_all(files)
    assert state.nominal
    assert module.parameters_size(trainable_only=False) == 12
    module.lazy_reset_grad()
    for action in (
        lambda: module.train_step(batch()),
        lambda: module.eval_step(batch()),
        lambda: module.read_parameters(trainable_only=False),
        lambda: module.export_model_for_inferencing(files.folder / "out.onnx", ["y"]),
    ):
        with pytest.raises(EngineError, match="Please load the model parameters first"):
            action()
    with pytest.raises(StateError, match="all parameters need to be loaded"):
        module.write_parameters(flat[:8], trainable_only=True)
    state.save(files.folder / "nominal", include_optimizer_state=False)
    assert codec.load(files.folder / "nominal").nominal

    module.write_parameters(flat, trainable_only=False)
    assert not state.nominal
    loss = to_array(module.train_step(batch())[0])
    optimizer.step()
    reference = Reference.of(complete)
    np.testing.assert_allclose(loss, reference.train(*batch()), rtol=1e-5)
    reference.step(float(np.float32(0.001)))
    np.testing.assert_allclose(state.parameter("weight").data, reference.weight, rtol=1e-5)


def test_without_an_eval_model(files):
    module = SessionModule(load_state(files.checkpoint), files.training)
    assert module.input_names(training=False) == []
    assert module.output_names(training=False) == []
    with pytest.raises(EngineError, match="Eval model was not provided"):
        module.eval_step(batch())
    with pytest.raises(EngineError, match="updates the running statistic 'running' without a"):
        module.export_model_for_inferencing(files.folder / "out.onnx", ["y"])


def test_export(files):
    _, module, optimizer = open_all(files)
    module.train_step(batch())
    optimizer.step()
    path = files.folder / "inference.onnx"
    module.export_model_for_inferencing(path, ["y"])
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == ["x"]
    values = arrays(module)
    y = (batch()[0] @ values["weight"] + values["fc.bias"]) * values["scale"]
    np.testing.assert_allclose(session.run(None, {"x": batch()[0]})[0], y, rtol=1e-5)


def test_artifacts_that_do_not_belong_together(files):
    loaded = codec.load(files.checkpoint)
    moved = loaded.trainable.pop("fc.bias")
    frozen = SessionState(Checkpoint(loaded.trainable, loaded.frozen | {"fc.bias": moved}))
    with pytest.raises(ArtifactError, match=r"trains 'fc\.bias', which is frozen"):
        SessionModule(frozen, files.training)
    loaded.trainable["fc.bias"] = np.zeros(3, np.float32)
    with pytest.raises(EngineError, match=r"'fc\.bias' is float32\[3\].* but float32\[2\]"):
        SessionModule(SessionState(loaded), files.training)


@pytest.mark.parametrize("kind", ["training", "eval", "optimizer"])
def test_missing_files(files, kind):
    getattr(files, kind).unlink()
    with pytest.raises(ModelFileError, match=f"The {kind} model .* does not exist"):
        open_all(files)


@pytest.mark.parametrize("kind", ["training", "optimizer"])
def test_ort_format_is_refused_where_it_must_be_rewritten(files, kind):
    getattr(files, kind).write_bytes(b"\0\0\0\0ORTM")
    with pytest.raises(EngineError, match=rf"The {kind} model .* is in the \.ort format"):
        open_all(files)


def test_operators_that_the_runtime_lacks_are_named(files):
    text = session_models.TRAINING.replace("Sub(y, target)", "com.microsoft.Nope(y, target)")
    onnx.save(session_models.model(text), files.training)
    with pytest.raises(EngineError, match=r"training model on 'cpu': it has no operator .*Nope"):
        open_all(files)


def test_the_runtimes_own_words_come_with_ours(files):
    text = session_models.EVAL.replace("xw = MatMul(x, weight)", "xw = MatMul(x, scale2)")
    text = text.replace(
        "=> (FLOAT loss, FLOAT[batch, 2] centred)",
        "=> (FLOAT loss, FLOAT[batch, 2] centred) <FLOAT[4, 2] scale2 = {1,1,1,1,1,1,1,1}>",
    )
    onnx.save(session_models.model(text), files.eval)
    with pytest.raises(EngineError, match="cannot run the eval model on 'cpu'"):
        open_all(files)


def test_failures_in_a_run_are_ours(files):
    text = (
        session_models.EVAL.replace(
            "y = Mul(z, scale)",
            "y0 = Mul(z, scale) shape = Constant<value: tensor = int64[2] {9, 2}>()"
            "y = Reshape(y0, shape)",
        )
        .replace("FLOAT[batch, 2]", "FLOAT[b, 2]")
        .replace("FLOAT[batch, 3]", "FLOAT[b, 3]")
    )
    onnx.save(session_models.model(text), files.eval)
    _, module, _ = open_all(files)
    with pytest.raises(EngineError, match="failed in a step of the eval model"):
        module.eval_step(batch())


def test_session_options_are_the_users(files):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    state = load_state(files.checkpoint)
    module = SessionModule(state, files.training, files.eval, options=options)
    used = module._overwriting._opened.session.get_session_options()
    assert used.intra_op_num_threads == 1
    for _ in range(2):
        module.train_step(batch())
    open_stepper(module, files.optimizer).step()


@pytest.mark.parametrize("own_options", [True, False])
def test_external_weights(files, own_options):
    # Frozen weights that stayed inside of the model, in a file beside it: small and large ones.
    text = session_models.TRAINING.replace("FLOAT[2] scale, ", "").replace(
        "    xw =", "    scale = ReduceMax<axes: ints = [0], keepdims: int = 0>(table) xw ="
    )
    model = session_models.model(text)
    table = np.float32([[3, 5]]) - np.arange(1000, dtype=np.float32)[:, None]
    model.graph.initializer.append(numpy_helper.from_array(table, "table"))
    for tensor in model.graph.initializer:  # only raw data is moved to a file
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    onnx.save(
        model,
        files.training,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    loaded = codec.load(files.checkpoint)
    del loaded.frozen["scale"]
    options = onnxruntime.SessionOptions() if own_options else None
    module = SessionModule(SessionState(loaded), files.training, options=options)
    reference = Reference.of(session_models.checkpoint())
    reference.scale = np.array([3.0, 5.0])
    for reset in (True, False):
        loss = to_array(module.train_step(batch())[0])
        np.testing.assert_allclose(loss, reference.train(*batch(), reset=reset), rtol=1e-5)
    gradient = module.state.parameter("weight").grad
    np.testing.assert_allclose(gradient, reference.grads["weight"], rtol=1e-5)

    (files.folder / "weights.bin").unlink()
    with pytest.raises(ModelFileError, match=r"weights\.bin"):
        SessionModule(SessionState(codec.load(files.checkpoint)), files.training)


TEXT = f"""{session_models.HEADER}
train (string[batch] words, float[2] weight, float[2] mean,
       float[2] "weight_grad.accumulation.buffer", bool[1] lazy_reset_grad)
   => (float loss, bool[1] "weight_grad.accumulation.out", bool[1] "mean_grad.accumulation.out")
<bool[1] always = {{1}}>
{{
    x = Cast<to: int = 1>(words)
    total = ReduceSum<keepdims: int = 0>(x)
    all = ReduceSum<keepdims: int = 0>(weight)
    loss = Mul(total, all)
    zero = Sub(weight, weight)
    g = Add(zero, total)
    new = Add(mean, total)
    "weight_grad.accumulation.out" = com.microsoft.InPlaceAccumulatorV2(
        "weight_grad.accumulation.buffer", g, lazy_reset_grad)
    "mean_grad.accumulation.out" = com.microsoft.InPlaceAccumulatorV2(mean, new, always)
}}
{session_models.ACCUMULATOR}"""


@pytest.mark.parametrize("dtype", ["U", object])
def test_strings_are_fed(tmp_path, dtype):
    path = tmp_path / "training_model.onnx"
    onnx.save(parser.parse_model(TEXT), path)
    checkpoint = Checkpoint({"weight": np.float32([1, 2])}, {"mean": np.zeros(2, np.float32)})
    module = SessionModule(SessionState(checkpoint), path)
    words = np.array(["1", "2.5"], dtype=dtype)
    assert to_array(module.train_step([words])[0]) == 10.5
    module.train_step([words])
    np.testing.assert_array_equal(module.state.parameter("weight").grad, [7, 7])
    np.testing.assert_array_equal(module.state.parameter("mean").data, [7, 7])
    with pytest.raises(FeedError, match="'words'"):
        module.train_step([np.float32([1, 2])])


BFLOAT16 = f"""{session_models.HEADER}
train (bfloat16[2] x, bfloat16[2] weight, bfloat16[2] "weight_grad.accumulation.buffer",
       bool[1] lazy_reset_grad)
   => (bfloat16[2] loss, bool[1] "weight_grad.accumulation.out")
{{
    x32 = Cast<to: int = 1>(x)
    w32 = Cast<to: int = 1>(weight)
    loss32 = Mul(x32, w32)
    loss = Cast<to: int = 16>(loss32)
    g = Cast<to: int = 16>(x32)
    "weight_grad.accumulation.out" = com.microsoft.InPlaceAccumulatorV2(
        "weight_grad.accumulation.buffer", g, lazy_reset_grad)
}}
{session_models.ACCUMULATOR}"""


# onnxruntime 1.19 makes no bfloat16 memory outside of the CPU.
@pytest.mark.parametrize("device", DEVICES[: 1 if onnxruntime.__version__ < "1.20" else 2], ids=str)
def test_bfloat16(tmp_path, device):
    path = tmp_path / "training_model.onnx"
    onnx.save(parser.parse_model(BFLOAT16), path)
    weight = np.array([1, 2], ml_dtypes.bfloat16)
    module = SessionModule(SessionState(Checkpoint({"weight": weight}, {})), path, device=device)
    x = np.array([0.5, -3], ml_dtypes.bfloat16)
    loss = to_array(module.train_step([x])[0])
    module.train_step([x])
    assert loss.dtype == x.dtype
    np.testing.assert_array_equal(loss, x * weight)
    np.testing.assert_array_equal(module.state.parameter("weight").grad, 2 * x)


def test_a_parameter_as_a_result_is_a_copy(files):
    text = session_models.EVAL.replace("FLOAT[batch, 2] centred)", "FLOAT[3, 2] weight)")
    onnx.save(session_models.model(text), files.eval)
    state, module, _ = open_all(files)
    given = to_array(module.eval_step(batch())[1])
    kept = given.copy()
    state.parameter("weight").data[:] = 0
    np.testing.assert_array_equal(given, kept)
