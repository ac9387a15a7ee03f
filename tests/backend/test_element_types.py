"""A runtime without kernels for a model's element types: the error names the type and the operator.

It said "for the element types in this model" of a bfloat16 model, or quoted the runtime.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import parser

import blockdsl
from blockdsl.api import CheckpointState, Module
from blockdsl.backend import prepare
from blockdsl.errors import EngineError, UnsupportedTypeError
from tests.runs import forward, generate, weight

BRANCH = (
    "h = Exp(x) y = If(b) <then_branch = t () => ({type}[1, 1, 1, 1] p) {{ p = Cosh(h) }},"
    " else_branch = e () => ({type}[1, 1, 1, 1] q) {{ q = Neg(h) }}>"
)
MISSING = [
    # type, name of the type in the message, nodes, operator and what else the message names
    ("bfloat16", "bfloat16", "y = MatMul(x, x)", "MatMul (opset 13)"),
    ("bfloat16", "bfloat16", "y = Add(x, x)", "Add (opset 14)"),
    ("bfloat16", "bfloat16", "y = Softmax(x)", "(opset 13)"),
    ("bfloat16", "bfloat16", "y = Conv(x, x)", "Conv takes no bfloat16"),
    ("bfloat16", "bfloat16", BRANCH.format(type="bfloat16"), "Cosh takes no bfloat16"),
    ("double", "float64", "y = Conv(x, x)", "Conv (opset 11)"),
    ("double", "float64", BRANCH.format(type="double"), "Cosh (opset 9"),
]


@pytest.mark.parametrize(("kind", "name", "nodes", "operator"), MISSING)
def test_the_type_and_the_operator_are_named(kind, name, nodes, operator):
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        f"g ({kind}[1, 1, 1, 1] x, bool b) => ({kind}[1, 1, 1, 1] y) {{ {nodes} }}"
    )
    with pytest.raises(EngineError) as error:
        prepare(model)
    for text in (name, operator, "on 'cpu'", "to float32"):
        assert text in str(error.value)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float64])
def test_a_training_model_says_so_too(tmp_path, engine, dtype):
    dtype = np.dtype(dtype)
    generate(
        tmp_path,
        forward(
            lambda x: blockdsl.op.Erf(x @ weight("w", 4, 3, dtype=dtype)), ("N", 4), dtype=dtype
        ),
    )
    with pytest.raises(EngineError) as error:
        open_module(tmp_path, engine)
    assert dtype.name in str(error.value)
    if engine == "training":
        assert isinstance(error.value, UnsupportedTypeError)
    else:
        operator = "MatMul" if dtype.name == "bfloat16" else "Erf"
        assert f"no kernel of {operator} (opset 13, node '{operator}')" in str(error.value)


def open_module(folder, engine):
    state = CheckpointState.load_checkpoint(folder / "checkpoint", engine=engine)
    return Module(folder / "training_model.onnx", state)
