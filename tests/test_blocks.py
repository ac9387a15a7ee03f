"""Blocks: signatures, names, parameters and what single ones do.

Their values and gradients are tested by the rows of cases/blocks.py.
"""

import inspect

import numpy as np
import onnx
import pytest

import blockdsl
from blockdsl import blocks, op
from blockdsl.graph import current
from blockdsl.graph.marks import PARAMETER, mark_of
from blockdsl.testing import evaluate
from tests.cases import FAMILIES
from tests.engines import run

WITHOUT_CASE = {
    "Block": "abstract",
    "Cast": "below",
    "Constant": "below",
    "Dropout": "random: below",
    "Embedding": "no floats go in: below",
    "InputLike": "below",
    "LabelEncoder": "no floats go in: below",
    "Model": "takes a model: blocks/test_model.py",
    "PassThrough": "below",
    "SequenceConstruct": "no tensor comes out: below",
}

ONNXBLOCK = {
    # block: (parameters of its constructor, parameters of build) in onnxruntime-training 1.19.2
    "Add": ("", "input_name1, input_name2"),
    "Sub": ("", "input_name1, input_name2"),
    "Mul": ("", "input_name1, input_name2"),
    "Div": ("", "input_name1, input_name2"),
    "Pow": ("exponent", "pow_input_name"),
    "Sigmoid": ("", "input_name"),
    "Log": ("", "input_name"),
    "Neg": ("", "input_name"),
    "Abs": ("", "input_name"),
    "ReduceMean": ("keepdims=True", "input_name"),
    "ReduceSum": ("keepdims=True", "input_name"),
    "Constant": ("value_float", ""),
    "SequenceConstruct": ("", "*sequence_input_names"),
    "ReduceAllL2": ("", "*reduce_node_input_names"),
    "Clip": ("clip_min=None, clip_max=None", "clip_input_name"),
    "PassThrough": ("", "*input_names"),
    "InputLike": ("like", "input_name"),
    "LabelEncoder": (
        "default_float=0.0, default_int64=-1, default_string='_Unused', keys_floats=None, "
        "keys_int64s=None, keys_strings=None, values_floats=None, values_int64s=None, "
        "values_strings=None",
        "label_encoder_input_name",
    ),
    "Cast": ("to", "cast_input_name"),
    "Linear": ("in_features, out_features, bias=True, alpha=1.0, beta=1.0", "linear_input_name"),
}


def parameters_of(function):
    return [
        str(p.replace(annotation=p.empty))
        for p in inspect.signature(function).parameters.values()
        if p.name != "self"
    ]


def initializers(model):
    return {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}


def built(block, *inputs, opset=None):
    """The model of a block, its outputs those of the block."""
    with blockdsl.empty_base(opset) as handle:
        made = block(
            *(blockdsl.input(f"x{i}", dtype, shape) for i, (dtype, shape) in enumerate(inputs))
        )
        current().set_outputs([made] if isinstance(made, str) else list(made))
        current().check()
    return handle.model


# -- all of them ---------------------------------------------------------------------------------


def test_every_block_has_a_case():
    tested = {case.op_type.removeprefix("blocks.") for case in FAMILIES["blocks"]}
    assert tested == set(blocks.__all__) - set(WITHOUT_CASE)


@pytest.mark.parametrize("name", ONNXBLOCK)
def test_is_called_as_in_onnxblock(name):
    block = getattr(blocks, name)
    made, build = (text.split(", ") if text else [] for text in ONNXBLOCK[name])
    assert parameters_of(block)[: len(made)] == made
    assert [p.split("=")[0] for p in parameters_of(block.build)] == build


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (blocks.Add(), "Add()"),
        (blocks.Pow(2.0), "Pow(exponent=2.0)"),
        (blocks.ReduceMean(False), "ReduceMean(keepdims=False, axes=None)"),
        (
            blocks.Sequential(blocks.Flatten(), blocks.Relu()),
            "Sequential(Flatten(axis=1), Relu())",
        ),
    ],
)
def test_shows_its_configuration(block, shown):
    assert repr(block) == shown


def test_takes_names_of_tensors_appended_by_hand():
    class Root(blockdsl.Block):
        def build(self, name):
            node = onnx.helper.make_node("Abs", [name], ["size"], "size")
            self.base.graph.node.append(node)
            return blocks.Pow(0.5)("size")

    model = built(Root(), ("float32", (2,)))
    assert evaluate(model)({"x0": np.array([4, -9], np.float32)})[0].tolist() == [2, 3]


def test_subclasses_may_have_attributes_of_their_own():
    class Scaled(blocks.Linear):
        def __init__(self):
            super().__init__(3, 2)
            self.factor = 2

        def build(self, x):
            return self.factor * super().build(x)

    model = built(Scaled(), ("float32", (1, 3)))
    assert set(initializers(model)) >= {"Scaled.weight", "Scaled.bias"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    "block",
    [
        blocks.Linear(4, 2),
        blocks.Conv(4, 2, 1),
        blocks.BatchNorm(4),
        blocks.LayerNorm(4),
        blocks.Dropout(),
        blocks.Gelu(),
        blocks.ReduceAllL2(),
        blocks.Clip(0, 1),
        blocks.Pow(2),
    ],
    ids=repr,
)
def test_follows_the_type_of_its_input(block, dtype):
    dtype = onnx.TensorProto.BFLOAT16 if dtype == "bfloat16" else dtype
    opset = 22 if dtype == onnx.TensorProto.BFLOAT16 else 17
    model = built(block, (dtype, (3, 4, 4)), opset=opset)
    given, made = (v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output))
    widened = isinstance(block, blocks.ReduceAllL2) and given not in (1, 11)
    assert made == (onnx.TensorProto.FLOAT if widened else given)


# -- parameters ----------------------------------------------------------------------------------


class Net(blockdsl.Block):
    def __init__(self, **settings):
        self.first = blocks.Linear(3, 4, **settings)
        self.second = blocks.Linear(4, 4, **settings)

    def build(self, x):
        return self.second(self.second(self.first(x)))


def test_every_build_has_the_same_names_and_values():
    first, second = (initializers(built(Net(), ("float32", ("N", 3)))) for _ in range(2))
    names = [f"Net/{part}.{kind}" for part in ("first", "second") for kind in ("weight", "bias")]
    assert list(first) == list(second) == names
    for name in names:
        np.testing.assert_array_equal(first[name], second[name])


def test_seeds():
    def weight(**settings):
        return initializers(built(Net(**settings), ("float32", ("N", 3))))["Net/first.weight"]

    assert (weight() == weight(seed=0)).all()
    assert (weight() != weight(seed=1)).any()
    drawn = np.random.default_rng(5).uniform(-(3**-0.5), 3**-0.5, (3, 4)).astype(np.float32)
    assert (weight(seed=np.random.default_rng(5)) == drawn).all()


@pytest.mark.parametrize(
    ("block", "shape", "weight", "bias"),
    [
        (blocks.Linear(300, 200), ("N", 300), 300**-0.5, 300**-0.5),
        (blocks.Linear(300, 200, init="xavier"), ("N", 300), (6 / 500) ** 0.5, 300**-0.5),
        (blocks.Conv(8, 40, 5), ("N", 8, 9, 9), 200**-0.5, 200**-0.5),
        (blocks.Conv(8, 40, 5, groups=4), ("N", 8, 9, 9), 50**-0.5, 50**-0.5),
        (blocks.Conv(8, 40, 5, init="xavier"), ("N", 8, 9, 9), (6 / 1200) ** 0.5, 200**-0.5),
    ],
    ids=repr,
)
def test_weights_fill_their_range(block, shape, weight, bias):
    made = initializers(built(block, ("float32", shape)))
    for kind, limit in (("weight", weight), ("bias", bias)):
        values = made[f"{type(block).__name__}.{kind}"]
        assert np.abs(values).max() <= limit
        assert values.std() == pytest.approx(limit / 3**0.5, rel=0.02 if kind == "weight" else 0.25)


def test_statistics_are_no_parameters():
    with blockdsl.empty_base():
        blocks.BatchNorm(3)(blockdsl.input("x", shape=("N", 3)))
        blocks.BatchNorm(3)(blockdsl.input("y", shape=("N", 3)))
        names = ["BatchNorm.weight", "BatchNorm.bias", "BatchNorm_1.weight", "BatchNorm_1.bias"]
        initializers = current().proto.graph.initializer
        assert [t.name for t in initializers if mark_of(t) == PARAMETER] == names
        assert set(current().initializer_names()) == {
            *names,
            *(f"BatchNorm{i}.running_{what}" for i in ("", "_1") for what in ("mean", "var")),
        }


def test_batch_norm_moves_its_statistics():
    with blockdsl.empty_base() as handle:
        y = blocks.BatchNorm(2, momentum=0.75)(blockdsl.input("x", shape=(4, 2)))
        current().set_outputs([*current().producer(y).output])
    x = np.array([[1, 0], [3, 0], [5, 4], [7, 4]], np.float32)
    _, mean, var = evaluate(handle.model)({"x": x})
    np.testing.assert_allclose(mean, [1, 0.5])
    np.testing.assert_allclose(var, [0.75 + 5 / 4, 0.75 + 4 / 4])


# -- single blocks -------------------------------------------------------------------------------


def test_constant_has_the_type_of_the_model():
    with blockdsl.empty_base():
        assert str(blocks.Constant(2)().type) == "float32[]"
        blockdsl.input("ids", "int64", (2,))
        x = blockdsl.input("x", "float64", (2,))
        assert str(blocks.Constant(2)().type) == "float64[]"
        assert str(blocks.Constant([1, 2])().type) == "float64[2]"
        assert str(blocks.Constant(2, dtype="int64")().type) == "int64[]"
        assert str(blocks.Constant(2, dtype=onnx.TensorProto.FLOAT16)().type) == "float16[]"
        assert str(blocks.Constant(np.arange(3))().type) == "int64[3]"
        current().set_outputs([x.cast("float16")])
        assert blocks.Mul()(blocks.Constant(0.4)(), x.cast("float16")).dtype == np.float16


def test_constant_adds_no_axis():
    with blockdsl.empty_base():
        loss = blockdsl.input("x", shape=("N", 3)).mean()
        assert blocks.Mul()(blocks.Constant(0.5)(), loss).shape == ()
        assert blocks.Pow(2.0)(loss).shape == ()


def test_pass_through():
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", shape=(2,))
        assert blocks.PassThrough()(x) == (x,)
        assert blocks.PassThrough()(x, x) == (x, x)
    assert not handle.model.graph.node


def test_input_like():
    with blockdsl.empty_base():
        x = blockdsl.input("x", "float16", ("N", 3)).abs()
        assert str(blocks.InputLike(x)().type) == "float16[N, 3]"
        assert blocks.InputLike(x)() == "input_1"
        assert blocks.InputLike(x)("target") == "target"
        assert blocks.InputLike(x)("target") == "target"


@pytest.mark.parametrize(
    ("settings", "given", "wanted"),
    [
        ({"keys_strings": ["a", "b"], "values_int64s": [3, 4]}, ["b", "c"], [4, -1]),
        ({"keys_int64s": [1, 2], "values_floats": [0.5, 1.5]}, [2, 9], [1.5, 0.25]),
        ({"keys_int64s": [1, 2], "values_strings": ["x", "y"]}, [1, 9], ["x", "_Unused"]),
        ({"keys_floats": [1.0, 2.0], "values_int64s": [7, 8]}, [2.0, 9.0], [8, -1]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_label_encoder(settings, given, wanted):
    kind = {"keys_strings": str, "keys_int64s": np.int64, "keys_floats": np.float32}
    dtype = kind[next(iter(settings))]
    model = built(blocks.LabelEncoder(0.25, **settings), (dtype, ("N",)))
    array = np.array(given, object if dtype is str else dtype)
    assert run(model, {"x0": array})[0].tolist() == wanted


def test_sequence_construct():
    class Second(blockdsl.Block):
        def build(self, x, y):
            return op.SequenceAt(blocks.SequenceConstruct()(x, y), np.array(1))

    model = built(Second(), ("float32", (1,)), ("float32", (2,)), opset=11)
    feeds = {"x0": np.zeros(1, np.float32), "x1": np.ones(2, np.float32)}
    assert run(model, feeds)[0].tolist() == [1, 1]


def test_norm_of_half_floats_does_not_overflow():
    model = built(blocks.ReduceAllL2(), ("float16", (2,)), ("float16", (1,)))
    feeds = {"x0": np.array([300, 400], np.float16), "x1": np.array([1200], np.float16)}
    assert run(model, feeds)[0] == 1300


@pytest.mark.parametrize("opset", [12, 13, 22])
def test_dropout(opset):
    model = built(blocks.Dropout(0.25, seed=7), ("float32", (100, 100)), opset=opset)
    (ratio, training) = [initializers(model)[name] for name in model.graph.node[0].input[1:]]
    assert ratio == 0.25
    assert training.dtype == bool
    assert training
    if opset < 22:
        y = run(model, {"x0": np.ones((100, 100), np.float32)})[0]
        assert set(np.unique(y)) == {0, np.float32(1 / 0.75)}
        assert (y == 0).mean() == pytest.approx(0.25, abs=0.02)


def test_dropout_before_it_could_be_told_to_train():
    model = built(blocks.Dropout(0.25), ("float32", (2,)), opset=11)
    assert run(model, {"x0": np.ones(2, np.float32)})[0].tolist() == [1, 1]


def test_embedding():
    model = built(blocks.Embedding(50, 40), ("int64", (2, 3)))
    table = initializers(model)["Embedding.weight"]
    assert table.mean() == pytest.approx(0, abs=0.05)
    assert table.std() == pytest.approx(1, abs=0.05)
    ids = np.array([[0, 1, 49], [7, 7, 0]])
    np.testing.assert_array_equal(run(model, {"x0": ids})[0], table[ids])


def test_embedding_takes_a_type():
    with blockdsl.empty_base():
        ids = blockdsl.input("ids", "int32", (2,))
        assert blocks.Embedding(3, 4)(ids).dtype == np.float32
        assert blocks.Embedding(3, 4, dtype="float64")(ids).dtype == np.float64


def test_cast():
    for to in ("int64", np.int64, onnx.TensorProto.INT64):
        model = built(blocks.Cast(to), ("float32", (2,)), opset=7)
        y = run(model, {"x0": np.array([1.5, -2], np.float32)})[0]
        assert (y == [1, -2]).all()
        assert y.dtype == np.int64
