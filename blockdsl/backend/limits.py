"""The newest formats that the installed runtime loads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import onnx
from onnx import TensorProto, helper

from blockdsl.backend.sessions import create_session, quiet_options
from blockdsl.errors import EngineError


@dataclass(frozen=True)
class RuntimeLimits:
    """The newest formats that the installed runtime loads."""

    ir_version: int
    opset: int


@cache
def runtime_limits() -> RuntimeLimits:
    """The newest IR version and `ai.onnx` opset that the installed runtime loads.

    ONNX Runtime does not tell, so that it is found by trying, newest first (a few milliseconds).

    Raises:
        EngineError: No runtime is installed.
    """
    newest_ir, newest_opset = onnx.IR_VERSION, onnx.defs.onnx_opset_version()
    # A model of an opset that the runtime knows only in part loads with a warning or an error,
    # according to an environment variable; IR 3 and opset 7 are loaded by everything.
    ir = next((v for v in range(newest_ir, 3, -1) if _loads(v, 7)), 3)
    opset = next((v for v in range(newest_opset, 7, -1) if _loads(ir, v)), 7)
    return RuntimeLimits(ir, opset)


def _loads(ir_version: int, opset: int) -> bool:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "probe",
        [value("x", TensorProto.FLOAT, [1])],
        [value("y", TensorProto.FLOAT, [1])],
    )
    model = helper.make_model(
        graph, ir_version=ir_version, opset_imports=[helper.make_opsetid("", opset)]
    )
    options = quiet_options()
    options.intra_op_num_threads = 1
    try:
        create_session(model.SerializeToString(), options)
    except EngineError:
        raise
    except Exception:  # the runtime's classes have no common base
        return False
    return True
