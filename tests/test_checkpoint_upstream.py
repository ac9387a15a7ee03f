"""Checkpoints against onnxruntime-training itself, and the schema that every wheel ships."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from blockdsl.backend.checkpoint import Checkpoint, OptimizerGroup, dumps, load, save
from blockdsl.backend.checkpoint.format import DTYPES, IDENTIFIER, SCHEMA

# float32, int8, uint16, int64, bool, float64, uint64: enough of what it can load.
LOADABLE = [DTYPES[number] for number in (1, 3, 4, 7, 9, 11, 13)]


@pytest.fixture(scope="module")
def c() -> ModuleType:
    """The C API of onnxruntime-training; tests that ask for it are skipped on the stock wheels."""
    state = importlib.import_module("onnxruntime.capi._pybind_state")
    if not hasattr(state, "load_checkpoint"):
        pytest.skip("needs onnxruntime-training 1.19.2")
    return state


def tensors(named: dict[str, np.ndarray]) -> list[bytes]:
    return [numpy_helper.from_array(a, name).SerializeToString() for name, a in named.items()]


def example() -> Checkpoint:
    rng = np.random.default_rng(5)
    weight = rng.normal(size=(3, 2)).astype(np.float32)
    large = rng.normal(size=(40, 5))
    slots = {"w": {"momentum0": weight + 1, "momentum1": weight * weight}}
    return Checkpoint(
        trainable={"w": weight},
        frozen={"large": large, "mask": np.array([True, False]), "none": np.zeros((0, 4))},
        groups={"group0": OptimizerGroup("group0", step=4, learning_rate=0.125, slots=slots)},
        properties={"epoch": 3, "loss": 0.5, "note": "größer"},
    )


# --- the schema -----------------------------------------------------------------------------------


class Recorder:
    """A builder that writes down what the generated code asks it to do."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, args))


def generated(table: str) -> ModuleType:
    importlib.import_module("onnxruntime.tools.ort_format_model")  # it extends sys.path
    package = "onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs"
    return importlib.import_module(f"{package}.{table}")


SLOTS = {"bool": "PrependBoolSlot", "int32": "PrependInt32Slot", "int64": "PrependInt64Slot"}


@pytest.mark.parametrize("table", SCHEMA)
def test_schema_is_the_one_that_the_wheel_ships(table: str) -> None:
    code, recorder = generated(table), Recorder()
    getattr(code, f"{table}Start")(recorder)
    # The slot after those of the wheel is ours: the wheel's readers pass over it.
    fields = {name: kind for name, kind in SCHEMA[table].items() if name != "artifacts"}
    assert list(fields) == list(SCHEMA[table])[: len(fields)]
    for field in fields:
        getattr(code, f"{table}Add{field.title().replace('_', '')}")(recorder, 1)
    (_, (count,)), *adds = recorder.calls
    assert count == len(fields)
    assert [args[0] for _, args in adds] == list(range(count))
    for (method, _), kind in zip(adds, fields.values(), strict=True):
        assert method == (SLOTS | {"float": "PrependFloat32Slot"}).get(
            kind, "PrependUOffsetTRelativeSlot"
        )


def test_generated_code_reads_our_files() -> None:
    want = example()
    buffer = dumps(want)
    assert buffer[4:8] == IDENTIFIER
    root = generated("Checkpoint").Checkpoint.GetRootAs(buffer)
    assert root.Version() == 2
    module = root.ModuleState()
    assert [module.FrozenParams(i).Name() for i in range(module.FrozenParamsLength())] == [
        b"large",
        b"mask",
        b"none",
    ]
    large = module.FrozenParams(0)
    assert large.DimsAsNumpy().tolist() == [40, 5]
    assert DTYPES[large.DataType()] == np.float64
    assert large.RawDataAsNumpy().tobytes() == want.frozen["large"].tobytes()
    group = root.OptimizerGroups(0)
    assert (group.GroupName(), group.Step(), group.InitialLearningRate()) == (b"group0", 4, 0.125)
    state = group.OptimizerStates(0)
    assert state.ParamName() == b"w"
    assert [state.Momentums(i).Name() for i in range(2)] == [b"momentum0", b"momentum1"]
    bag = root.PropertyBag()
    assert (bag.Ints(0).Name(), bag.Ints(0).Value()) == (b"epoch", 3)
    assert bag.Strings(0).Value().decode() == "größer"


# --- files of onnxruntime-training ----------------------------------------------------------------


def test_reads_what_it_writes_for_new_artifacts(c: ModuleType, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    named = {
        f"{dtype.name} {shape}": np.asarray(rng.integers(0, 2, shape)).astype(dtype)
        for shape in [(), (0, 2), (3,), (20, 5)]
        for dtype in DTYPES.values()
        if dtype.kind != "c"  # it does not write complex numbers
    }
    frozen = {"z": np.arange(3), "a": np.float32(1)}
    c.save_checkpoint(tensors(named), tensors(frozen), str(tmp_path / "c"), False)
    assert dumps(load(tmp_path / "c")) == dumps(Checkpoint(named, frozen))


def test_nominal_checkpoints_are_the_same(c: ModuleType, tmp_path: Path) -> None:
    named, frozen = {"w": np.ones((2, 3), np.float32)}, {"n": np.arange(3)}
    c.save_checkpoint(tensors(named), tensors(frozen), str(tmp_path / "theirs"), True)
    save(Checkpoint(named, frozen, nominal=True), tmp_path / "ours")
    assert dumps(load(tmp_path / "theirs")) == dumps(load(tmp_path / "ours"))
    # It stays nominal through its hands.
    c.save_checkpoint(c.load_checkpoint(str(tmp_path / "ours")), str(tmp_path / "again"), True)
    assert dumps(load(tmp_path / "again")) == dumps(load(tmp_path / "ours"))


@pytest.mark.parametrize("threshold", [0, 10**9], ids=["external", "inline"])
def test_it_reads_what_we_write(threshold: int, c: ModuleType, tmp_path: Path) -> None:
    want = example()
    save(want, tmp_path / "ours", external_data_threshold=threshold)
    state = c.load_checkpoint(str(tmp_path / "ours"))
    assert state.get_property("epoch") == 3
    assert sorted(state.parameter_names()) == ["large", "mask", "none", "w"]
    c.save_checkpoint(state, str(tmp_path / "theirs"), True)
    # It keeps the choice between one file and two, but for optimizer state, always in the first.
    assert (tmp_path / "theirs.data").exists() == (threshold == 0)
    assert dumps(load(tmp_path / "theirs")) == dumps(want)


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("upstream")


@st.composite
def loadable(draw: st.DrawFn) -> np.ndarray:
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.integers(0, 2, shape).astype(draw(st.sampled_from(LOADABLE)))


named = st.dictionaries(names, loadable(), max_size=3)


@given(
    trainable=st.dictionaries(names.filter(bool), loadable(), max_size=3),
    slots=st.dictionaries(names, named, max_size=2),
    properties=st.dictionaries(names, st.integers(-(2**63), 2**63 - 1) | names, max_size=3),
    threshold=st.sampled_from([0, 10**9]),
)
@settings(deadline=None)
def test_it_accepts_all_that_we_write(
    trainable: dict[str, np.ndarray],
    slots: dict[str, dict[str, np.ndarray]],
    properties: dict[str, int | float | str],
    threshold: int,
    c: ModuleType,
    folder: Path,
) -> None:
    def in_order(items: dict[str, Any]) -> dict[str, Any]:  # it sorts by the bytes of the name
        return dict(sorted(items.items(), key=lambda item: item[0].encode()))

    group = OptimizerGroup("other", 1, 0.5, slots)
    save(
        Checkpoint(trainable, {}, groups={"other": group}, properties=properties),
        folder / "ours",
        external_data_threshold=threshold,
    )
    c.save_checkpoint(c.load_checkpoint(str(folder / "ours")), str(folder / "theirs"), True)
    group.slots = in_order({name: in_order(slot) for name, slot in slots.items()})
    want = Checkpoint(
        in_order(trainable), {}, groups={"other": group}, properties=in_order(properties)
    )
    assert dumps(load(folder / "theirs")) == dumps(want)


@pytest.mark.parametrize("dtype", [10, 16, 17], ids=lambda number: DTYPES[number].name)
def test_types_that_it_cannot_load(dtype: int, c: ModuleType, tmp_path: Path) -> None:
    save(Checkpoint({"w": np.ones(3, DTYPES[dtype])}, {}), tmp_path / "c")
    with pytest.raises(RuntimeError, match=f"Unsupported data type: {dtype}"):
        c.load_checkpoint(str(tmp_path / "c"))


# --- training with onnxruntime-training -----------------------------------------------------------


def model(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> str:
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return str(path)


def tensor(name: str, elem_type: int, shape: list[Any]) -> Any:
    return helper.make_tensor_value_info(name, elem_type, shape)


@pytest.fixture
def artifacts(tmp_path: Path) -> tuple[str, str]:
    """A training model whose gradient is its input, and AdamW."""
    buffer, out = "w_grad.accumulation.buffer", "w_grad.accumulation.out"
    accumulate = helper.make_node(
        "InPlaceAccumulatorV2", [buffer, "x", "lazy_reset_grad"], [out], domain="com.microsoft"
    )
    product = helper.make_node("Mul", ["x", "w"], ["xw"])
    loss = helper.make_node("ReduceSum", ["xw"], ["loss"], keepdims=0)
    parameters = [tensor(name, TensorProto.FLOAT, [3, 2]) for name in ("x", "w", buffer)]
    training = model(
        tmp_path / "training.onnx",
        [product, loss, accumulate],
        [*parameters, tensor("lazy_reset_grad", TensorProto.BOOL, [1])],
        [tensor("loss", TensorProto.FLOAT, []), tensor(out, TensorProto.BOOL, [1])],
    )
    sequences = ["params", "gradients", "first_order_moments", "second_order_moments"]
    inputs = ["learning_rate", "step", *sequences]
    step = helper.make_node("AdamWOptimizer", inputs, ["done"], domain="com.microsoft")
    optimizer = model(
        tmp_path / "optimizer.onnx",
        [step],
        [
            tensor("learning_rate", TensorProto.FLOAT, [1]),
            tensor("step", TensorProto.INT64, [1]),
            *(
                helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)
                for name in sequences
            ),
        ],
        [tensor("done", TensorProto.BOOL, [1])],
    )
    return training, optimizer


def train(c: ModuleType, artifacts: tuple[str, str], path: Path, steps: int) -> None:
    """Trains from the checkpoint at `path`, and saves to it."""
    device = c.OrtDevice(c.OrtDevice.cpu(), c.OrtDevice.default_memory(), 0)
    state, options = c.load_checkpoint(str(path)), c.SessionOptions()
    module = c.Module(artifacts[0], state, None, device, options)
    optimizer = c.Optimizer(artifacts[1], state, device, options)
    for step in range(steps):
        fetches = c.OrtValueVector()
        module.train_step([np.full((3, 2), np.sin(step + 1), np.float32)], fetches)
        optimizer.optimizer_step()
        module.lazy_reset_grad()
    c.save_checkpoint(state, str(path), True)


def test_a_run_goes_on_through_our_hands(
    c: ModuleType, artifacts: tuple[str, str], tmp_path: Path
) -> None:
    start = Checkpoint({"w": np.ones((3, 2), np.float32)}, {})
    for path in (tmp_path / "one", tmp_path / "two"):
        save(start, path)
        train(c, artifacts, path, 3)
    between = load(tmp_path / "two")
    assert between.groups["group0"].step == 3
    between.groups["theirs"] = OptimizerGroup("theirs", 9, 0.5, {"w": {"nu": np.arange(3)}})
    between.groups["group0"].slots["w"]["third"] = np.arange(3)
    save(between, tmp_path / "two", external_data_threshold=0)
    for path in (tmp_path / "one", tmp_path / "two"):
        train(c, artifacts, path, 3)
    one, two = load(tmp_path / "one"), load(tmp_path / "two")
    # Other groups and other slots ride along, untouched.
    assert two.groups.pop("theirs").slots["w"]["nu"].tolist() == [0, 1, 2]
    assert two.groups["group0"].slots["w"].pop("third").tolist() == [0, 1, 2]
    assert dumps(one) == dumps(two)
