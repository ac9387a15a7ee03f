"""Dimensions that converters leave open without a name of their own: PaddlePaddle's "?" and -1.

Axes of one "?" were taken for equal, so that an image of 48 x 192 was refused.
"""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import blockdsl
from blockdsl import artifacts
from blockdsl.api import CheckpointState, Module


class MeanSquare(blockdsl.Block):
    def build(self, y):
        return (y * y).mean()


def model(dims):
    """A convolution over images of the given dimensions."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [*dims])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [dims[0], 2, *dims[2:]])
    weight = numpy_helper.from_array(np.ones((2, 3, 1, 1), np.float32), "w")
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "g", [x], [y])
    graph.initializer.append(weight)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("dims", [("?", 3, "?", "?"), (-1, 3, -1, -1), ("-", 3, "*", "*")], ids=str)
def test_any_sizes_are_taken(dims, engine, tmp_path):
    artifacts.generate_artifacts(model(dims), loss=MeanSquare(), artifact_directory=tmp_path)
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint", engine=engine)
    module = Module(tmp_path / "training_model.onnx", state, tmp_path / "eval_model.onnx")
    x = np.ones((2, 3, 4, 5), np.float32)
    assert float(module(x)) == 9
    assert float(module.eval()(x[:1, :, :3])) == 9


def test_axes_of_one_name_are_equal(engine, tmp_path):
    artifacts.generate_artifacts(
        model(("N", 3, "size", "size")), loss=MeanSquare(), artifact_directory=tmp_path
    )
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint", engine=engine)
    module = Module(tmp_path / "training_model.onnx", state)
    with pytest.raises(blockdsl.BlockError, match="axis 3 is 'size', which is 4"):
        module(np.ones((2, 3, 4, 5), np.float32))
