"""Checkpoints: what goes in comes out, and every mistake has its message."""

from __future__ import annotations

import pickle
import re
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from blockdsl.backend.checkpoint import (
    Checkpoint,
    OptimizerGroup,
    dumps,
    flatbuffer,
    load,
    loads,
    save,
)
from blockdsl.backend.checkpoint.format import DTYPES, SCHEMA
from blockdsl.errors import BlockError, CheckpointError, CheckpointNotFoundError


def example() -> Checkpoint:
    rng = np.random.default_rng(7)
    weight = rng.normal(size=(40, 3)).astype(np.float32)
    slots = {"z.weight": {"momentum0": weight + 1, "momentum1": weight * 2}}
    state = {"rng": {"state": np.arange(4, dtype=np.uint64)}}
    return Checkpoint(
        trainable={"z.weight": weight, "a.bias": np.float32([1, 2])},
        frozen={"table": np.arange(20)},
        groups={
            "group0": OptimizerGroup("group0", step=3, learning_rate=0.5, slots=slots),
            "more": OptimizerGroup("more", slots=state),
        },
        properties={"epoch": 2**40, "loss": 0.25, "note": "größer"},
    )


# --- round trips ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (5,), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda dtype: dtype.name)
def test_every_dtype_and_shape(dtype: np.dtype, shape: tuple[int, ...], tmp_path: Path) -> None:
    bits = np.random.default_rng(3).integers(0, 2, (*shape, dtype.itemsize), np.uint8)
    value = np.frombuffer(bits.tobytes(), dtype).reshape(shape)
    for threshold in (0, 10**9):
        save(Checkpoint({"w": value}, {}), tmp_path / "c", external_data_threshold=threshold)
        back = load(tmp_path / "c").trainable["w"]
        assert back.dtype == dtype
        assert back.shape == shape
        assert back.tobytes() == value.tobytes()
        assert back.flags.writeable
        assert back.flags.aligned


def test_all_fields_come_back() -> None:
    back = loads(dumps(example()))
    assert list(back.trainable) == ["z.weight", "a.bias"]  # the order is kept
    assert back.frozen["table"].dtype == np.int64
    assert not back.nominal
    assert list(back.groups) == ["group0", "more"]
    group = back.groups["group0"]
    assert (group.name, group.step, group.learning_rate) == ("group0", 3, 0.5)
    weight, momentum = back.trainable["z.weight"], group.slots["z.weight"]["momentum1"]
    np.testing.assert_array_equal(momentum, weight * 2)
    assert back.groups["more"].slots["rng"]["state"].tolist() == [0, 1, 2, 3]
    assert back.properties == {"epoch": 2**40, "loss": 0.25, "note": "größer"}


def test_nominal_keeps_names_and_types_only() -> None:
    checkpoint = Checkpoint({"w": np.ones((3, 4), np.float16)}, {"n": np.arange(3)}, nominal=True)
    back = loads(dumps(checkpoint))
    assert back.nominal
    assert (back.trainable["w"].dtype, back.trainable["w"].shape) == (np.float16, ())
    assert (back.frozen["n"].dtype, back.frozen["n"].shape) == (np.int64, ())


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3).T,
        np.arange(8, dtype=np.int64)[::2],
        np.arange(3, dtype=">f4"),
        np.float64(1.5),
    ],
    ids=["transposed", "strided", "big-endian", "scalar"],
)
def test_any_memory_layout(value: np.ndarray) -> None:
    np.testing.assert_array_equal(loads(dumps(Checkpoint({"w": value}, {}))).trainable["w"], value)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (True, 1),
        (np.bool_(False), 0),
        (np.int32(-5), -5),
        (-(2**63), -(2**63)),
        (0.1, float(np.float32(0.1))),
        (np.float64(2.5), 2.5),
        (1e300, float("inf")),
        ("", ""),
    ],
)
def test_properties(value: object, kept: object) -> None:
    back = loads(dumps(Checkpoint({}, {}, properties={"p": value}))).properties["p"]
    assert back == kept
    assert type(back) is type(kept)


_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_float32 = st.floats(width=32, allow_nan=False)
_int64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def _tensors(draw: st.DrawFn) -> np.ndarray:
    dtype = draw(st.sampled_from(list(DTYPES.values())))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype).reshape(shape)


def _named(prefix: str = "") -> st.SearchStrategy[dict[str, np.ndarray]]:
    return st.dictionaries(_names.map(lambda name: prefix + name), _tensors(), max_size=3)


_groups = st.builds(
    OptimizerGroup,
    name=_names,
    step=_int64,
    learning_rate=_float32,
    slots=st.dictionaries(_names, _named(), max_size=2),
)
_checkpoints = st.builds(
    Checkpoint,
    trainable=_named("trainable "),
    frozen=_named("frozen "),
    nominal=st.booleans(),
    groups=st.lists(_groups, max_size=2).map(
        lambda groups: {group.name: group for group in groups}
    ),
    properties=st.dictionaries(_names, _int64 | _float32 | _names, max_size=4),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@given(checkpoint=_checkpoints, threshold=st.sampled_from([0, 200, 10**9]))
@settings(deadline=None)
def test_round_trip_of_anything(checkpoint: Checkpoint, threshold: int, folder: Path) -> None:
    save(checkpoint, folder / "c", external_data_threshold=threshold)
    # Names, order, types, shapes and bits at once: nothing that `dumps` writes is left out.
    assert dumps(load(folder / "c")) == dumps(checkpoint)


# --- damaged files --------------------------------------------------------------------------------

_sound = dumps(example())
_structure = _sound.index(example().trainable["z.weight"].tobytes())  # where the tensors begin


@given(cut=st.integers(0, len(_sound) - 1))
def test_truncated(cut: int) -> None:
    with pytest.raises(CheckpointError, match=r"^Cannot read the checkpoint: it is "):
        loads(_sound[:cut])


@given(
    changes=st.lists(
        st.tuples(st.integers(0, _structure - 1), st.integers(0, 255)), min_size=1, max_size=4
    )
)
@settings(max_examples=500, deadline=None)
def test_damaged_bytes_are_an_error_or_a_checkpoint(changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(_sound)
    for at, byte in changes:
        damaged[at] = byte
    with suppress(CheckpointError):  # any other error fails the test, and so does a crash
        loads(damaged)


@given(junk=st.binary(max_size=200))
def test_junk_after_the_identifier(junk: bytes) -> None:
    with suppress(CheckpointError):
        loads(b"\x08\0\0\0ODTC" + junk)


def test_tables_that_expand_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flatbuffer, "_MAX_TABLES", 1000)
    # Each level is a table whose two children are the same next level: 840 bytes, 2 ** 30 tables.
    level = struct.pack("<HHHxxiIIII", 6, 8, 4, 8, 4, 2, 16, 12)
    buffer = struct.pack("<I4s", 16, b"DEMO") + 30 * level + bytes(100)
    with pytest.raises(flatbuffer.FlatbufferError, match="more than 1000 tables"):
        flatbuffer.unpack({"Node": {"nodes": "[Node]"}}, "Node", np.frombuffer(buffer, np.uint8))


WEIGHT = {"name": "w", "dims": (2,), "data_type": 1, "raw_data": memoryview(bytes(8))}
BAD_TENSORS = {
    "no name": ({"name": None}, "a name is missing"),
    "negative size": ({"dims": (-2,)}, "'w' has the shape [-2]"),
    "too short": ({"dims": (3,)}, "'w' of shape [3] has 8 bytes, not 12"),
    "endless": ({"dims": (2**40, 2**40)}, "has 8 bytes, not"),
    "endless beside a zero": (
        {"dims": (2**62, 2**62, 0), "raw_data": memoryview(b"")},
        "'w' has the shape [4611686018427387904, 4611686018427387904, 0]",
    ),
    "rank 99": ({"dims": (1,) * 98 + (2,)}, "'w' has the shape [1, 1,"),
    "no data": ({"raw_data": None}, "'w' has no data"),
    "text": ({"data_type": 8, "string_data": ["a"]}, "'w' is of ONNX element type 8, which is"),
    "external": (
        {"raw_data": None, "external_data_offset": 0},
        "its tensors stand in a second file: load it from its path.",
    ),
}


def crafted(version: int, tensors: list[dict]) -> bytes:
    table = {"version": version, "module_state": {"requires_grad_params": tensors}}
    return b"".join(flatbuffer.pack(SCHEMA, "Checkpoint", b"ODTC", table))


@pytest.mark.parametrize(("change", "message"), BAD_TENSORS.values(), ids=BAD_TENSORS)
def test_bad_tensor(change: dict, message: str) -> None:
    tensor = {key: value for key, value in (WEIGHT | change).items() if value is not None}
    with pytest.raises(CheckpointError, match=re.escape(message)):
        loads(crafted(2, [tensor]))


def test_name_that_occurs_twice() -> None:
    with pytest.raises(CheckpointError, match=r"is damaged \(the name 'w' occurs twice\)"):
        loads(crafted(2, [WEIGHT, WEIGHT]))


def test_other_version() -> None:
    with pytest.raises(CheckpointError, match=r"it has version 3 of the format, and version 2"):
        loads(crafted(3, [WEIGHT]))


# --- mistakes -------------------------------------------------------------------------------------

MODEL = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [])).SerializeToString()
OTHER_FILES = {
    "empty": (b"", "it is an empty file"),
    "onnx": (MODEL, "it is an ONNX model; the checkpoint is the file 'checkpoint' beside it"),
    "ort": (b"\x20\0\0\0ORTM", "it is a model in ONNX Runtime's own format"),
    "pickle": (pickle.dumps([1]), "it is a Python pickle"),
    "zip": (b"PK\x03\x04" + bytes(20), "it is a zip archive, such as torch.save"),
    "safetensors": (b"\x10\0\0\0\0\0\0\0{}", "it is a safetensors file"),
    "numpy": (b"\x93NUMPY\x01\x00", "it is a NumPy array"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1", "fetch it with `git lfs pull`"),
    "text": (b"hello, world", "it is no checkpoint: bytes 4 to 8 are b'o, w'"),
}


@pytest.mark.parametrize(("content", "message"), OTHER_FILES.values(), ids=OTHER_FILES)
def test_not_a_checkpoint(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=re.escape(message)) as caught:
        load(path)
    assert str(caught.value).startswith(f"Cannot read the checkpoint '{path}': ")
    assert isinstance(caught.value, BlockError)
    assert isinstance(caught.value, RuntimeError)  # what onnxruntime-training raises


def test_missing_file_lists_near_names(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").touch()
    with pytest.raises(CheckpointNotFoundError, match=r"Did you mean 'checkpoint'\?") as caught:
        load(tmp_path / "chekpoint")
    assert isinstance(caught.value, FileNotFoundError)
    with pytest.raises(CheckpointNotFoundError, match=r"the folder '.*no' does not exist"):
        load(tmp_path / "no" / "checkpoint")


def test_folder_instead_of_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"it is a folder\.$"):
        load(tmp_path)
    (tmp_path / "checkpoint").touch()
    with pytest.raises(CheckpointError, match=r"it is a folder\. Did you mean '.*checkpoint'\?"):
        load(tmp_path)


ONE = np.float32([1])
UNWRITABLE = {
    "text": (lambda: Checkpoint({"w": np.array(["a"])}, {}), "'w' has the element type str"),
    "objects": (lambda: Checkpoint({"w": np.array([{}])}, {}), "'w' has the element type object"),
    "twice": (lambda: Checkpoint({"w": ONE}, {"w": ONE}), "'w' is both trainable and frozen"),
    "surrogate": (
        lambda: Checkpoint({"\ud800": ONE}, {}),
        "The text '\\ud800' is not valid Unicode",
    ),
    "group name": (
        lambda: Checkpoint({}, {}, groups={"a": OptimizerGroup("b")}),
        "The optimizer group 'b' is listed as 'a'",
    ),
    "step": (
        lambda: Checkpoint({}, {}, groups={"a": OptimizerGroup("a", step=2**63)}),
        "The step of the optimizer group 'a' is 9223372036854775808, which does not fit",
    ),
    "large property": (
        lambda: Checkpoint({}, {}, properties={"p": -(2**70)}),
        "The property 'p' is -1180591620717411303424, which does not fit into 64 bits",
    ),
    "list property": (
        lambda: Checkpoint({}, {}, properties={"p": [1]}),  # type: ignore[dict-item]
        "The property 'p' is of type list. A checkpoint holds integers, floats and text",
    ),
}


@pytest.mark.parametrize(("make", "message"), UNWRITABLE.values(), ids=UNWRITABLE)
def test_what_a_checkpoint_cannot_hold(
    make: Callable[[], Checkpoint], message: str, tmp_path: Path
) -> None:
    for threshold in (0, 10**9):
        with pytest.raises(CheckpointError, match=re.escape(message)):
            save(make(), tmp_path / "c", external_data_threshold=threshold)
    assert list(tmp_path.iterdir()) == []
