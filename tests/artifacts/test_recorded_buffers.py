"""Buffers by the record of PyTorch's default exporter, in slots that take weights."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from blockdsl.artifacts.roles import roles

SIGNATURE = """\
p_w: PARAMETER target='w'
b_basis: BUFFER target='basis'
b_frequencies: BUFFER target='frequencies'
x: USER_INPUT
"""


def fourier_basis(size):
    """Sines and cosines under a window: a short-time Fourier transform as a convolution."""
    angles = 2 * np.pi * np.outer(np.arange(size // 2 + 1), np.arange(size)) / size
    waves = np.concatenate([np.cos(angles), np.sin(angles)]) * np.hanning(size + 1)[:-1]
    return waves[:, None].astype(np.float32)


def test_the_fourier_basis_of_a_front_end_is_trained():
    # The older exporter does not tell that it is a buffer, so that one network had two answers.
    rng = np.random.default_rng(0)
    basis = fourier_basis(64)
    arrays = {
        "basis": basis,
        "w": rng.standard_normal((len(basis), 4)).astype(np.float32),
        "frequencies": rng.standard_normal((4, 8)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "basis"], ["f"], strides=[32]),
        helper.make_node("Transpose", ["f"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "w"], ["h"]),
        helper.make_node("MatMul", ["h", "frequencies"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1, "T"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    entry = graph.metadata_props.add()
    entry.key = "pkg.torch.export.ExportedProgram.graph_signature"
    entry.value = SIGNATURE
    found = roles(helper.make_model(graph, producer_name="pytorch"))
    assert {name: role.kind for name, role in found.items()} == {
        "basis": "weight",
        "w": "weight",
        "frequencies": "constant",
    }
