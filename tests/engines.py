"""Running models on the installed ONNX Runtime, and which engines it has."""

from __future__ import annotations

from functools import cache

import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.capi import _pybind_state


def available_engines() -> list[str]:
    """`session` always; `training` where the wheel is a training build."""
    return ["session", *(["training"] if hasattr(_pybind_state, "Module") else [])]


def without_layouts():
    """Session options that leave out the blocked layouts of convolutions on a CPU.

    They round otherwise, enough to move an activation across the kink of a ReLU6: right on either
    side, and no longer what PyTorch's run got.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    return options


def run(model, feeds):
    """The outputs of a model on ONNX Runtime's CPU."""
    options = without_layouts()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    wanted = {i.name for i in session.get_inputs()}
    return session.run(None, {k: v for k, v in feeds.items() if k in wanted})


def runs(model, feeds):
    """Whether the runtime knows the model's opset and has kernels for its operators."""
    try:
        run(model, feeds)
    except Exception:  # each version of the runtime raises another class
        return False
    return True


@cache
def loads_opset(opset: int) -> bool:
    """Whether the runtime knows an opset of the default domain."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "probe", [x], [y])
    probe = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    try:
        onnxruntime.InferenceSession(probe.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:  # each version of the runtime raises another class
        return False
    return True
