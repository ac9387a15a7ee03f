"""Training operators: the optimizer models that use them, and what they mean without a kernel."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, checker, helper, parser

import blockdsl
import blockdsl.training  # registers the accumulator
from blockdsl.errors import GraphError
from blockdsl.functional.model_functions import functions_for
from blockdsl.graph import current
from blockdsl.optim import SGD, AdamW, ClipGradNorm
from blockdsl.passes.unroll_optimizer import unroll_optimizer
from blockdsl.testing import assert_close, evaluate
from tests.engines import loads_opset, run
from tests.optimizers import (
    GRADIENTS,
    RATES,
    START,
    Stepper,
    arrays,
    made,
    model_of,
    name_of,
    native_rows,
    plain_form,
    plain_of,
    trajectory,
)

# -- the form of onnxruntime-training --------------------------------------------------------------

MOMENTS = ["first_order_moments", "second_order_moments"]


@pytest.mark.parametrize("clip_grad", [None, ClipGradNorm(2.5)])
@pytest.mark.parametrize("optimizer", [AdamW, SGD])
def test_the_native_form(optimizer, clip_grad):
    count = 2 if optimizer is AdamW else 1
    model = model_of(optimizer(clip_grad=clip_grad), arrays(START, np.float32), opset=14)
    assert [v.name for v in model.graph.input] == [
        *("learning_rate", "step", "params", "gradients"),
        *MOMENTS[:count],
    ]
    rate, step, *sequences = (v.type for v in model.graph.input)
    assert rate == helper.make_tensor_type_proto(TensorProto.FLOAT, [1])
    assert step == helper.make_tensor_type_proto(TensorProto.INT64, [1])
    assert {s.sequence_type.elem_type.tensor_type.elem_type for s in sequences} == {1}
    (flag,) = model.graph.output
    assert flag.type == helper.make_tensor_type_proto(TensorProto.BOOL, [1])
    node = model.graph.node[-1]
    clipped = "gradients" if clip_grad is None else model.graph.node[0].output[0]
    if optimizer is AdamW:
        given = ["learning_rate", "step", "params", clipped, *MOMENTS]
    else:
        given = ["learning_rate", "params", clipped]
    assert list(node.input) == given
    assert node.output[0] == flag.name
    assert model.opset_import[1].version == 14
    assert {f.name for f in model.functions} == {n.op_type for n in model.graph.node}


def test_adamw_has_the_defaults_of_1_19():
    model = model_of(AdamW(), arrays(START, np.float32))
    found = {a.name: helper.get_attribute_value(a) for a in model.graph.node[0].attribute}
    expected = {"alpha": 0.9, "beta": 0.999, "epsilon": 1e-6, "weight_decay": 0.0}
    assert found == pytest.approx(expected | {"correct_bias": 1, "adam_mode": 1})


def test_settings_are_positional_as_in_1_19():
    clip = ClipGradNorm(1.0)
    one, other = AdamW(False, (0.5, 0.75), 1e-3, 0.5, clip), SGD(clip)
    assert (one.bias_correction, one.betas, one.eps, one.weight_decay) == (
        *(False, (0.5, 0.75), 1e-3),
        0.5,
    )
    assert one.clip_grad is other.clip_grad is clip


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(momentum=0.5),
        SGD(weight_decay=0.1),
        AdamW(weight_decay_groups={"*.bias": 0.1}),
        AdamW(mode="torch", bias_correction=False),
    ],
    ids=str,
)
def test_what_the_training_build_does_not_know_is_plain(optimizer):
    model = model_of(optimizer, arrays(START, np.float32))
    assert {n.domain for n in model.graph.node} == {""}
    assert not model.functions


def test_groups_that_agree_are_one():
    optimizer = AdamW(weight_decay=0.5, weight_decay_groups={"*.bias": 0.25, "*": 0.25})
    (node,) = model_of(optimizer, arrays(START, np.float32)).graph.node
    assert {a.name: a.f for a in node.attribute}["weight_decay"] == 0.25


def exposed(model):
    """A model of sequences that puts out the new values, too."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for name in copy.graph.node[-1].output[1:]:
        kind = helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)
        copy.graph.output.append(kind)
    return copy


@pytest.mark.parametrize("opset", [13, 14, 17, 18, 21, 23])
@pytest.mark.parametrize("row", native_rows(), ids=name_of)
def test_the_native_form_runs_in_a_plain_session(row, opset):
    if not loads_opset(opset):
        pytest.skip("the runtime is older")
    parameters = arrays(START, np.float32)
    model = exposed(model_of(made(*row), parameters, opset))
    checker.check_model(model, full_check=True)
    stepper = Stepper(plain_of(made(*row), parameters, opset), parameters)
    # Copies: the kernels of the training build write into what they are fed.
    state = [[v.copy() for v in parameters.values()]]
    state += [[np.zeros_like(v) for v in parameters.values()] for _ in MOMENTS]
    for count, expected in enumerate(trajectory(stepper), start=1):
        rate, gradients = RATES[count - 1], arrays(GRADIENTS[count - 1], np.float32)
        feeds = dict(zip(["params", *MOMENTS], state, strict=True))
        feeds |= {"learning_rate": np.float32([rate]), "step": np.int64([count])}
        feeds["gradients"] = list(gradients.values())
        flag, *new = run(model, feeds)
        np.testing.assert_array_equal(flag, [True])
        state[: len(new)] = new
        for values, slot in zip(new, ("", ".momentum0", ".momentum1"), strict=False):
            for name, value in zip(parameters, values, strict=True):
                assert_close(np.asarray(value), expected[name + slot], rtol=1e-6, what=name + slot)


def test_below_opset_13_only_the_training_build_runs_the_native_form():
    parameters = arrays(START, np.float32)
    model = model_of(AdamW(), parameters, opset=12)
    assert [n.op_type for n in model.graph.node] == ["AdamWOptimizer"]
    assert not model.functions


UPSTREAM = """
<ir_version: 8, opset_import: ["": 14, "com.microsoft": 1]>
optimizer (float[1] learning_rate, int64[1] step, seq(float[]) params, seq(float[]) gradients,
           seq(float[]) first_order_moments, seq(float[]) second_order_moments)
    => (bool[1] flag)
{
  clipped = com.microsoft.InplaceClipGradNorm <max_norm = 1.5> (gradients)
  flag = com.microsoft.AdamWOptimizer <adam_mode = 1, epsilon = 1e-6, weight_decay = 0.25>
      (learning_rate, step, params, clipped, first_order_moments, second_order_moments)
}"""


def test_models_of_onnxruntime_training_are_unrolled():
    parameters = arrays(START, np.float32)
    row = ("AdamW", {"weight_decay": 0.25, "clip_grad": 1.5})
    ours = Stepper(plain_of(made(*row), parameters), parameters)
    theirs = Stepper(plain_form(parser.parse_model(UPSTREAM), parameters), parameters)
    for state, expected in zip(trajectory(theirs), trajectory(ours), strict=True):
        for name, value in expected.items():
            np.testing.assert_array_equal(state[name], value, name)


def test_functions_have_the_outputs_that_are_called_for():
    functions = {f.name: f for f in functions_for(parser.parse_model(UPSTREAM))}
    assert list(functions) == ["InplaceClipGradNorm", "AdamWOptimizer"]
    assert list(functions["AdamWOptimizer"].output) == ["updated_flag"]


def test_unknown_models_of_sequences_are_refused():
    model = parser.parse_model(UPSTREAM.replace("AdamWOptimizer", "LambOptimizer"))
    with pytest.raises(GraphError, match=r"com.microsoft::LambOptimizer\]; known are models of"):
        unroll_optimizer(model, [("w", TensorProto.FLOAT, (2,))])
    with pytest.raises(
        GraphError, match="sequences of float32, and the parameter 'w' is of float64"
    ):
        unroll_optimizer(parser.parse_model(UPSTREAM), [("w", TensorProto.DOUBLE, (2,))])
    with pytest.raises(GraphError, match="no parameter is trained"):
        unroll_optimizer(parser.parse_model(UPSTREAM), [])


# -- the other training operators ------------------------------------------------------------------


def accumulating(opset, dtype, shape, flag):
    """A model that adds to a buffer by the training operator."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = ["buffer", "value", *(["overwrite"] if flag else [])]
    node = helper.make_node("InPlaceAccumulatorV2", inputs, ["flag", "sum"], domain="com.microsoft")
    infos = [helper.make_tensor_value_info(name, kind, shape) for name in inputs[:2]]
    infos += [helper.make_tensor_value_info(name, TensorProto.BOOL, [1]) for name in inputs[2:]]
    outputs = [
        helper.make_tensor_value_info("flag", TensorProto.BOOL, [1]),
        helper.make_tensor_value_info("sum", kind, shape),
    ]
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "accumulating", infos, outputs)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    model.functions.extend(functions_for(model))
    return model


@pytest.mark.parametrize("opset", [7, 9, 13, 21, 23])
@pytest.mark.parametrize("shape", [(), (2, 3)], ids=str)
@pytest.mark.parametrize("flag", [True, False], ids=["flag", "no flag"])
def test_accumulator(flag, shape, opset):
    model = accumulating(opset, np.float32, shape, flag)
    checker.check_model(model, full_check=True)
    if not loads_opset(opset):
        pytest.skip("the runtime is older")
    one = np.ones(shape, np.float32)

    def summed(buffer, overwrite):
        feeds = {"buffer": buffer.copy(), "value": one, "overwrite": np.array([overwrite])}
        updated, total = run(model, feeds)
        np.testing.assert_array_equal(updated, [True])
        return total

    np.testing.assert_array_equal(summed(one, False), 2 * one)
    if flag:
        np.testing.assert_array_equal(summed(np.full_like(one, np.nan), True), one)


@pytest.mark.parametrize("opset", [7, 13, 18, 21])
def test_norm_of_several_tensors(opset):
    with blockdsl.empty_base(opset) as handle:
        x, y = blockdsl.input("x", shape=(2, 3)), blockdsl.input("y", shape=(4,))
        norm = blockdsl.op.microsoft.ReduceAllL2(x, y)
        current().set_outputs([norm])
        handle.model.functions.extend(functions_for(handle.model))
        current().check()
    feeds = {"x": np.full((2, 3), 2, np.float32), "y": np.ones(4, np.float32)}
    assert_close(run(handle.model, feeds)[0], np.float32(np.sqrt(28)))
    assert_close(evaluate(handle.model)(feeds)[0], np.float32(np.sqrt(28)))


def test_norms_of_different_numbers_of_tensors_have_no_function():
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", shape=(2,))
        blockdsl.op.microsoft.ReduceAllL2(x)
        blockdsl.op.microsoft.ReduceAllL2(x, x)
    with pytest.raises(GraphError, match=r"calls ReduceAllL2 with \[1, 2\] inputs"):
        functions_for(handle.model)


def test_functions_are_made_once():
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", shape=(2,))
        blockdsl.op.microsoft.ReduceAllL2(x)
        handle.model.functions.extend(functions_for(handle.model))
        assert functions_for(handle.model) == []
