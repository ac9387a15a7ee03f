"""The bodies of training operators against the kernels of onnxruntime-training."""

from __future__ import annotations

import copy
import re
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from blockdsl.errors import GradientError
from blockdsl.graph.schema import MICROSOFT
from blockdsl.passes.replace_training_operators import replace_training_operators
from blockdsl.testing import evaluate
from blockdsl.training_ops import BODIES, REFUSED
from tests.engines import available_engines, run
from tests.training_ops.calls import Call
from tests.training_ops.cases import CALLS

TRAINING_BUILD = "training" in available_engines()


def plain(call):
    """The call, its operators replaced; nothing of the training build is left."""
    model = copy.deepcopy(call.model)
    replace_training_operators(model)
    left = {(node.domain, node.op_type) for node in model.graph.node}
    assert not left & BODIES
    return model


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_body_computes_what_its_kernel_does(call):
    """Where there is no kernel, what ONNX's reference evaluator makes of the body, or NumPy."""
    found = run(plain(call), call.feeds)
    if call.expected is not None:
        expected = call.expected
    elif TRAINING_BUILD:
        expected = run(call.model, call.feeds)
    else:
        expected = evaluate(plain(call))(call.feeds)
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_body_serves_symbolic_shapes(call):
    expected = run(plain(call), call.feeds)
    found = run(plain(replace(call, symbolic="floats")), call.feeds)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, strict=True)


def test_every_body_has_a_call():
    assert {(call.domain, call.op) for call in CALLS} == BODIES


# -- what gradients of onnxruntime-training can hold -----------------------------------------------

STOCK = ["BiasGelu", "FastGelu", "FusedMatMul", "Gelu", "MatMulBnb4", "QuickGelu", "Trilu"]
"""What a stock runtime has, too."""

EMITTED = [
    "ATen",
    "AveragePoolGrad",
    "BatchNormInternal",
    "BatchNormalizationGrad",
    "BatchScale",
    "BiasFastGeluGrad_dX",
    "BiasGelu",
    "BiasGeluGrad_dX",
    "BitmaskDropout",
    "BitmaskDropoutGrad",
    "BroadcastGradientArgs",
    "ConcatTraining",
    "ConvGrad",
    "ConvTransposeGrad",
    "DivGrad",
    "DropoutGrad",
    "FakeQuant",
    "FakeQuantGrad",
    "FastGelu",
    "FastGeluGrad",
    "FlattenAndUnpad",
    "FusedMatMul",
    "GRUGrad",
    "GRUTraining",
    "GatherElementsGrad",
    "GatherGrad",
    "GatherNDGrad",
    "Gelu",
    "GeluGrad",
    "InvertibleLayerNormalizationGrad",
    "LSTMGrad",
    "LSTMTraining",
    "LayerNormalizationGrad",
    "LeakyReluGrad",
    "LogSoftmaxGrad",
    "LogSoftmaxGrad_13",
    "MatMulBnb4",
    "MaxPoolGrad",
    "MegatronF",
    "MegatronG",
    "NcclAllReduce",
    "NegativeLogLikelihoodLossInternal",
    "NegativeLogLikelihoodLossInternal2",
    "PadAndUnflatten",
    "PythonOp",
    "PythonOpGrad",
    "QuickGelu",
    "QuickGeluGrad",
    "Recv",
    "ReduceSumTraining",
    "ReluGrad",
    "ResizeGrad",
    "Scale",
    "ScaledSum",
    "Send",
    "ShrunkenGather",
    "SigmoidGrad",
    "SimplifiedLayerNormalizationGrad",
    "SliceGrad",
    "SoftmaxCrossEntropy",
    "SoftmaxCrossEntropyGrad",
    "SoftmaxCrossEntropyLossGrad",
    "SoftmaxCrossEntropyLossInternal",
    "SoftmaxCrossEntropyLossInternalGrad",
    "SoftmaxGrad",
    "SoftmaxGrad_13",
    "SparseSoftmaxCrossEntropy",
    "SparseSoftmaxCrossEntropyGrad",
    "SplitTraining",
    "TanhGrad",
    "Trilu",
    "ZeroGradient",
]
"""What the 83 gradient builders of 1.19.2 and the rewriters before them write, beside ONNX."""


def test_every_operator_is_covered_or_refused():
    covered = {name for _, name in {*BODIES, *REFUSED}}
    assert set(EMITTED) <= covered | set(STOCK)
    assert not BODIES & REFUSED.keys()


def is_registered(name, domain):
    """Whether the installed runtime knows an operator; how it is called is wrong on purpose."""
    node = helper.make_node(name, ["x"] * 99, ["y"], domain=domain)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy")
    graph = helper.make_graph([node], "g", [x], [y])
    opsets = [helper.make_opsetid("", 9), helper.make_opsetid(domain or MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    with pytest.raises(Exception) as error:  # noqa: PT011  the runtime's classes have no base
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return not re.search("is not a registered function/op|No Op registered", str(error.value))


def test_only_the_training_build_knows_them():
    names = {*BODIES, *REFUSED} - {("org.pytorch.aten", "ATen")}
    known = {key for key in names if is_registered(key[1], key[0])}
    if TRAINING_BUILD:
        assert {name for _, name in names - known} <= {"NcclAllReduce", "PythonOp", "PythonOpGrad"}
    else:
        assert {name for _, name in known} <= {"BitmaskBiasDropout", "BitmaskDropout"}
    assert all(is_registered(name, MICROSOFT) for name in STOCK)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("key", sorted(REFUSED), ids=str)
def test_what_is_refused_is_named_with_the_reason(key):
    domain, name = key
    call = Call(name, [np.zeros((2, 2), np.float32)], domain=domain)
    with pytest.raises(GradientError) as error:
        replace_training_operators(call.model)
    shown = f"{domain}::{name}" if domain else name
    assert str(error.value) == f"{shown} (node 'call') has no plain form: {REFUSED[key]}."


X = np.zeros((2, 1, 3), np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            Call("AveragePoolGrad", [X], 1, {"kernel_shape": [2]}, ""),
            "AveragePoolGrad .node 'call'. has no plain form here. Its output has no lengths along",
        ),
        (
            Call("MaxPoolGrad", [X, X.astype(np.int64)], 1, {"kernel_shape": [2]}, ""),
            "Its second input 'i1' does not come from a MaxPool",
        ),
        (
            Call("LSTMTraining", [X, X, X], 5, {"direction": "reverse", "clip": 1.0}),
            "one direction and the standard activations alone, and it sets clip, direction.",
        ),
        (
            Call("GRUTraining", [X, X, X], 3, {"activations": ["Relu", "Tanh"]}),
            "it sets activations. Generate the artifacts with blockdsl",
        ),
        (
            Call("ReduceSumTraining", [X, np.array([0])], opset=12),
            "The axes 'i1' are computed, which ReduceSum takes from opset 13 on",
        ),
        (
            Call("SplitTraining", [X, np.array([1, 1])], 2, {"axis": 0}, symbolic="all"),
            "Of 'i1', the lengths of its parts, the number is unknown",
        ),
        (
            Call("BroadcastGradientArgs", [np.array([1]), np.array([1])], 2, symbolic="all"),
            "The rank that the shape 'i0' is of is not known",
        ),
        (
            Call(
                "SoftmaxCrossEntropyLossInternal", [X[:, 0], np.array([0, 1]), None, np.array(1)], 2
            ),
            "The label to ignore, 'i3', is computed: make it a constant",
        ),
    ],
)
def test_forms_without_a_body_are_named(call, message):
    with pytest.raises(GradientError, match=message):
        replace_training_operators(call.model)


def test_what_is_not_of_the_training_build_stays():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Neg (x) }'
    )
    before = model.SerializeToString()
    replace_training_operators(model)
    assert model.SerializeToString() == before
