"""What blocks say when they cannot be built."""

import pytest

import blockdsl
from blockdsl import blocks
from blockdsl.errors import BlockError, GraphError, OpError, UnknownNameError


def build(block, *inputs, opset=None):
    with blockdsl.empty_base(opset):
        block(*(blockdsl.input(f"x{i}", *given) for i, given in enumerate(inputs)))


X = ("float32", ("N", 3))
IMAGE = ("float32", ("N", 3, 8, 8))
IDS = ("int64", ("N", 3))

REFUSED = [
    (blocks.Linear(4, 2), [X], OpError, r"Linear\(in_features=4.*size 4 along axis -1.*\[N, 3\]"),
    (
        blocks.Linear(3, 2),
        [IDS],
        OpError,
        r"Linear takes a floating-point tensor, and 'x0' has.*int64",
    ),
    (
        blocks.Linear(3, 2, init="he"),
        [X],
        OpError,
        "initialisation must be 'kaiming' or 'xavier', got 'he'",
    ),
    (blocks.Conv(3, 4, 3), [X], OpError, "needs a tensor with axes after batch and channels"),
    (blocks.Conv(3, 4, (3, 3, 3)), [IMAGE], OpError, "for 2 axes: give one number, or 2"),
    (blocks.Conv(3, 4, 3, padding="valid"), [IMAGE], OpError, "no padding 'valid'.*'same'"),
    (blocks.Conv(5, 4, 3), [IMAGE], OpError, "size 5 along axis 1"),
    (blocks.Conv(3, 4, 3, groups=2), [IMAGE], OpError, "groups must divide both"),
    (blocks.Conv(3, 4, 3, groups=0), [IMAGE], OpError, "groups must divide both"),
    (blocks.BatchNorm(4), [IMAGE], OpError, "size 4 along axis 1"),
    (blocks.LayerNorm((8, 9)), [IMAGE], OpError, "size 9 along axis 3"),
    (blocks.Embedding(3, 2), [X], GraphError, "Gather cannot take these inputs"),
    (blocks.ReduceSum(axes=2), [X], OpError, "Axis 2 is out of range for rank 2: use -2 to 1"),
    (blocks.Transpose((0, 2)), [X], OpError, "Axis 2 is out of range"),
    (blocks.Concat(), [], OpError, "Concat needs at least one tensor"),
    (blocks.ReduceAllL2(), [], OpError, "ReduceAllL2 needs at least one tensor"),
    (blocks.Add(), [X, ("float64", ("N", 3))], GraphError, r"Add cannot take.*float32.*float64"),
    (blocks.MatMul(), [X, ("float32", (2, 3))], GraphError, "MatMul cannot take"),
]


@pytest.mark.parametrize(("block", "inputs", "error", "message"), REFUSED, ids=lambda v: None)
def test_refuses(block, inputs, error, message):
    with pytest.raises(error, match=message) as caught:
        build(block, *inputs)
    assert isinstance(caught.value, BlockError)


@pytest.mark.parametrize(
    "block", [blocks.Neg(), blocks.Pow(2), blocks.Clip(0), blocks.Linear(2, 2)]
)
def test_refuses_unknown_names(block):
    with blockdsl.empty_base():
        blockdsl.input("logits", shape=(2, 2))
        with pytest.raises(UnknownNameError, match=r"'logit'.*Did you mean 'logits'"):
            block("logit")


def test_refuses_what_its_opset_lacks():
    for block, opset, message in [
        (blocks.Gelu(), 8, "Erf exists from opset 9 on, and the model has opset 8"),
        (blocks.Slice([0], [1], steps=[2]), 9, "takes no 'steps'"),
        (blocks.MaxPool(2, dilation=2), 9, "takes no 'dilations'"),
    ]:
        with pytest.raises(OpError, match=message):
            build(block, IMAGE, opset=opset)


def test_input_like_refuses():
    with blockdsl.empty_base():
        blockdsl.input("x", shape=("N", 3))
        blockdsl.input("taken", shape=("N", 2))
        with pytest.raises(UnknownNameError, match="Could not find input or output with name y"):
            blocks.InputLike("y")("target")
        with pytest.raises(
            GraphError, match=r"input taken of the type float32\[N, 2\] already, and"
        ):
            blocks.InputLike("x")("taken")


def test_absolute_path_of_a_temporary_file(tmp_path):
    with pytest.raises(GraphError, match=r"relative path for the temp_file_name.*can be left out"):
        blockdsl.blocks.PassThrough(temp_file_name=str(tmp_path / "model.onnx"))
    assert blockdsl.blocks.PassThrough("model.onnx")
