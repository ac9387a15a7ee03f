"""Plain optimizer models: what they bind to, what they remember and what they refuse."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from blockdsl.backend import checkpoint as codec
from blockdsl.backend.buffer import Buffer
from blockdsl.backend.checkpoint import OptimizerGroup
from blockdsl.backend.providers import CPU
from blockdsl.backend.session import PlainOptimizer, SessionModule, SessionState, open_stepper
from blockdsl.backend.session.state import OptimizerState
from blockdsl.errors import EngineError, ModelFileError
from tests import session_models


@pytest.fixture
def files(tmp_path):
    return session_models.write(tmp_path)


def open_module(files, **groups):
    loaded = codec.load(files.checkpoint)
    loaded.groups = groups
    return SessionModule(SessionState(loaded), files.training)


class Store:
    """A store of parameters that is not the session engine's."""

    def __init__(self, **parameters):
        self.values = {name: Buffer(np.array(value)) for name, value in parameters.items()}
        self.gradients = {name: Buffer(np.ones_like(b.array)) for name, b in self.values.items()}
        self.state = OptimizerState()

    def value(self, name):
        return self.values[name]

    def gradient(self, name):
        return self.gradients[name]

    def optimizer(self):
        return self.state


def plain(inputs: str, outputs: str, nodes: str) -> onnx.ModelProto:
    return parser.parse_model(f"""{session_models.HEADER}
    step (float[1] learning_rate, int64[1] step, {inputs}) => ({outputs}) {{ {nodes} }}""")


def test_rate_step_and_every_slot_are_given():
    store = Store(a=np.float32([1, 2]))
    model = plain(
        'float[2] a, float[2] a_grad, float[2] "a.sum", int64[1] "a.last"',
        'float[2] "a.out", float[2] "a.sum.out", int64[1] "a.last.out", float[2] side',
        """"a.sum.out" = Add("a.sum", a_grad) u = Mul("a.sum.out", learning_rate)
        "a.out" = Sub(a, u) "a.last.out" = Identity(step) side = Neg(a)""",
    )
    optimizer = PlainOptimizer(model, store, ["a"], CPU)
    assert optimizer.learning_rate == float(np.float32(0.001))
    optimizer.learning_rate = 0.5
    for _ in range(3):
        optimizer.step()
    np.testing.assert_array_equal(store.values["a"].array, [1 - 3, 2 - 3])
    np.testing.assert_array_equal(store.gradients["a"].array, [1, 1])
    slots = store.state.slots["a"]
    np.testing.assert_array_equal(slots["sum"].array, [3, 3])
    np.testing.assert_array_equal(slots["last"].array, [3])
    assert slots["last"].dtype == np.int64
    assert optimizer.step_count == 3


def test_the_longest_parameter_owns_a_slot():
    store = Store(**{"fc": np.float32([0]), "fc.weight": np.float32([0])})
    model = plain(
        'float[1] "fc.weight", float[1] "fc.weight_grad", float[1] "fc.weight.m", '
        'float[1] fc, float[1] fc_grad, float[1] "fc.m.n"',
        'float[1] "fc.weight.out", float[1] "fc.m.n.out"',
        """"fc.weight.out" = Sum("fc.weight", "fc.weight.m", "fc.weight_grad")
        "fc.m.n.out" = Sum(fc, fc_grad, "fc.m.n")""",
    )
    PlainOptimizer(model, store, ["fc", "fc.weight"], CPU).step()
    assert {p: list(s) for p, s in store.state.slots.items()} == {"fc.weight": ["m"], "fc": ["m.n"]}
    assert store.values["fc.weight"].array == 1


def test_gradients_can_be_changed_in_place():
    store = Store(a=np.float32([1, 1]))
    model = plain(
        "float[2] a, float[2] a_grad",
        'float[2] "a_grad.out", float[2] "a.out"',
        """n = ReduceL2<keepdims: int = 0>(a_grad) "a_grad.out" = Div(a_grad, n)
        "a.out" = Sub(a, "a_grad.out")""",
    )
    PlainOptimizer(model, store, ["a"], CPU).step()
    clipped = np.float32([1, 1]) / np.sqrt(np.float32(2))
    np.testing.assert_allclose(store.gradients["a"].array, clipped, rtol=1e-6)
    np.testing.assert_allclose(store.values["a"].array, 1 - clipped, rtol=1e-6)


def test_parameters_that_exchange_their_values():
    store = Store(a=np.float32([1]), b=np.float32([2]))
    model = plain(
        "float[1] a, float[1] b", 'float[1] "a.out", float[1] "b.out"',
        '"a.out" = Neg(b) "b.out" = Neg(a)',
    )  # fmt: skip
    PlainOptimizer(model, store, ["a", "b"], CPU).step()
    assert store.values["a"].array == -2
    assert store.values["b"].array == -1


def test_memory_that_was_replaced_is_bound_anew():
    store = Store(a=np.float32([1]))
    model = plain("float[1] a, float[1] a_grad", 'float[1] "a.out"', '"a.out" = Sub(a, a_grad)')
    optimizer = PlainOptimizer(model, store, ["a"], CPU)
    optimizer.step()
    store.gradients["a"] = Buffer(np.float32([5]))
    optimizer.step()
    assert store.values["a"].array == 1 - 1 - 5


def test_a_failed_step_does_not_count():
    store = Store(a=np.float32([1, 1]))
    model = plain(
        "float[2] a, float[2] a_grad",
        'float[2] "a.out"',
        'three = Constant<value: tensor = int64[1] {3}>() r = Reshape(a, step) "a.out" = Neg(r)',
    )
    optimizer = PlainOptimizer(model, store, ["a"], CPU)
    with pytest.raises(EngineError, match="failed in a step of the optimizer model"):
        optimizer.step()
    assert optimizer.step_count == 0


def test_unknown_inputs_are_named(files):
    text = session_models.OPTIMIZER.replace("fc.bias", "fc.bais")
    onnx.save(session_models.model(text), files.optimizer)
    with pytest.raises(EngineError, match=r"input 'fc\.bais' .*Did you mean 'fc\.bias'"):
        open_stepper(open_module(files), files.optimizer)


def test_slots_of_unknown_size_are_refused(files):
    text = session_models.OPTIMIZER.replace('FLOAT[2] "fc.bias.momentum0"', 'FLOAT[n] "fc.bias.m"')
    text = text.replace('Mul("fc.bias.momentum0"', 'Mul("fc.bias.m"')
    onnx.save(session_models.model(text), files.optimizer)
    with pytest.raises(EngineError, match=r"'fc\.bias\.m' has no static tensor type"):
        open_stepper(open_module(files), files.optimizer)


@pytest.mark.parametrize(
    "slots",
    [{"velocity": np.zeros((3, 2), np.float32)}, {"momentum0": np.zeros((2, 3), np.float32)}],
)
def test_the_state_of_another_optimizer_is_refused(files, slots):
    group = OptimizerGroup("group0", 3, 0.1, {"weight": slots})
    with pytest.raises(EngineError) as error:
        open_stepper(open_module(files, group0=group), files.optimizer)
    for part in (
        "'weight'",
        next(iter(slots)),
        "momentum0 float32[3, 2]",
        "_optimizer_state=False",
    ):
        assert part in str(error.value)


def test_a_parameter_that_was_not_trained_before_starts_with_zeros(files):
    held = {"momentum0": np.ones((3, 2), np.float32)}
    group = OptimizerGroup("group0", 3, 0.1, {"weight": held})
    module = open_module(files, group0=group)
    optimizer = open_stepper(module, files.optimizer)
    slots = module.state.optimizer().slots
    assert slots["weight"]["momentum0"].array.all()
    assert not slots["fc.bias"]["momentum0"].array.any()
    assert optimizer.step_count == 3
    assert optimizer.learning_rate == float(np.float32(0.1))


def test_groups_of_others_are_kept(files):
    other = OptimizerGroup("mine", 7, 0.25, {"weight": {"x": np.float32([1])}})
    module = open_module(files, mine=other)
    open_stepper(module, files.optimizer).step()
    module.state.save(files.checkpoint, include_optimizer_state=True)
    saved = codec.load(files.checkpoint).groups
    assert saved["mine"].step == 7
    np.testing.assert_array_equal(saved["mine"].slots["weight"]["x"], [1])
    assert saved["group0"].step == 1


def test_not_a_model(files):
    files.optimizer.write_text("nothing")
    with pytest.raises(ModelFileError, match="is not an ONNX model"):
        open_stepper(open_module(files), files.optimizer)
