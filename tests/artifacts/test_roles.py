"""The role of a tensor by the slot that it is in, wherever the model holds it."""

import ml_dtypes
import numpy as np
import pytest
from onnx import NodeProto, helper, numpy_helper

from blockdsl.artifacts.roles import roles
from blockdsl.artifacts.slots import SLOTS
from tests.placed import PLACES, placed

rng = np.random.default_rng(0)


def random(*shape, dtype=np.float32):
    return rng.normal(size=shape).astype(dtype)


def node(op_type, inputs, domain="", **attributes):
    return helper.make_node(op_type, inputs.split(), ["y"], domain=domain, **attributes)


MS = "com.microsoft"

ROWS = {
    # name: node; constants, and the kind of each
    "MatMul, second": (node("MatMul", "x w"), {"w": "weight"}),
    "MatMul, first": (node("MatMul", "w x"), {"w": "weight"}),
    "Gemm": (node("Gemm", "x w b"), {"w": "weight", "b": "bias"}),
    "Conv": (node("Conv", "x w b"), {"w": "weight", "b": "bias"}),
    "ConvTranspose": (node("ConvTranspose", "x w b"), {"w": "weight", "b": "bias"}),
    "DeformConv": (node("DeformConv", "x w x b"), {"w": "weight", "b": "bias"}),
    "RNN": (node("RNN", "x w r b"), {"w": "weight", "r": "weight", "b": "bias"}),
    "GRU": (node("GRU", "x w r b x h"), {"w": "weight", "b": "bias", "h": "initial state"}),
    "LSTM": (
        node("LSTM", "x w r b x h c p"),
        {"r": "weight", "h": "initial state", "c": "initial state", "p": "weight"},
    ),
    "Einsum": (node("Einsum", "x w", equation="bi,ij->bj"), {"w": "weight"}),
    "PRelu": (node("PRelu", "x s"), {"s": "slope"}),
    "Gather": (node("Gather", "w x"), {"w": "embedding"}),
    "GatherElements": (node("GatherElements", "w x"), {"w": "embedding"}),
    "GatherND": (node("GatherND", "w x"), {"w": "embedding"}),
    "BatchNormalization": (
        node("BatchNormalization", "x s b m v"),
        {"s": "scale", "b": "bias", "m": "statistic", "v": "statistic"},
    ),
    "InstanceNormalization": (
        node("InstanceNormalization", "x s b"),
        {"s": "scale", "b": "bias"},
    ),
    "LayerNormalization": (node("LayerNormalization", "x s b"), {"s": "scale", "b": "bias"}),
    "GroupNormalization": (node("GroupNormalization", "x s b"), {"s": "scale", "b": "bias"}),
    "RMSNormalization": (node("RMSNormalization", "x s"), {"s": "scale"}),
    "class weights": (node("SoftmaxCrossEntropyLoss", "x x w"), {"w": "constant"}),
    "Resize": (node("Resize", "x r w"), {"r": "constant", "w": "constant"}),
    "Clip": (node("Clip", "x r w"), {"r": "constant", "w": "constant"}),
    "window": (node("STFT", "x x w"), {"w": "table"}),
    "FusedMatMul": (node("FusedMatMul", "x w", MS), {"w": "weight"}),
    "Attention": (node("Attention", "x w b", MS), {"w": "weight", "b": "bias"}),
    "SkipLayerNormalization": (
        node("SkipLayerNormalization", "x x s b c", MS),
        {"s": "scale", "b": "bias", "c": "bias"},
    ),
    "MultiHeadAttention": (node("MultiHeadAttention", "x x x b", MS), {"b": "bias"}),
    "EmbedLayerNormalization": (
        node("EmbedLayerNormalization", "x x w v u s b", MS),
        {"w": "embedding", "v": "embedding", "u": "embedding", "s": "scale", "b": "bias"},
    ),
    "BiasGelu": (node("BiasGelu", "x b", MS), {"b": "bias"}),
    "RotaryEmbedding": (node("RotaryEmbedding", "x x c s", MS), {"c": "table", "s": "table"}),
    "a custom operator": (node("Mix", "x w", "com.example"), {"w": "weight"}),
}


def constants(step, dtype=np.float32):
    return {name: random(4, 6, dtype=dtype) for name in dict.fromkeys(step.input) if name != "x"}


def kinds(model, names):
    """The kinds of tensors by the last parts of their names."""
    found = {}
    for name, role in roles(model).items():
        if name.split("/")[-1] in names:
            found.setdefault(name.split("/")[-1], set()).add(role.kind)
    return found


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("row", ROWS)
def test_slots_of_operators(row, place):
    # What was no initializer of the graph was never a parameter.
    step, expected = ROWS[row]
    model = placed([step], constants(step), place)
    assert kinds(model, expected) == {name: {kind} for name, kind in expected.items()}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("row", ROWS)
def test_slots_in_every_float_type(row, dtype):
    step, expected = ROWS[row]
    model = placed([step], constants(step, dtype), "initializer", dtype=dtype)
    assert kinds(model, expected) == {name: {kind} for name, kind in expected.items()}


@pytest.mark.parametrize("name", ["val_0", "/0/w", "/enc/W/read:0", "onnx::MatMul_12", "17", "w"])
@pytest.mark.parametrize("row", ["MatMul, second", "Conv", "LSTM", "Gather", "Einsum"])
def test_a_name_decides_nothing_where_a_slot_does(row, name):
    # `val_0` and `/0/w` were taken for constants of an exporter.
    step, expected = ROWS[row]
    renamed = NodeProto()
    renamed.CopyFrom(step)
    first = next(iter(expected))
    renamed.input[:] = [name if i == first else i for i in step.input]
    found = roles(placed([renamed], constants(renamed), "initializer"))
    assert found[name].kind == expected[first]


LAYOUT = {
    "Transpose": node("Transpose", "w", perm=[1, 0]),
    "Reshape": node("Reshape", "w shape"),
    "Cast": node("Cast", "w", to=1),
    "Identity": node("Identity", "w"),
    "Unsqueeze": node("Unsqueeze", "w axes"),
    "Squeeze": node("Squeeze", "w axes"),
    "Expand": node("Expand", "w shape"),
    "Slice": node("Slice", "w axes axes"),
    "Concat": node("Concat", "w w", axis=0),
    "Tile": node("Tile", "w shape"),
    "Pad": node("Pad", "w shape"),
    "a norm": node("ReduceL2", "w"),
    "Gather of constants": node("Gather", "w axes"),
}


@pytest.mark.parametrize("moved", LAYOUT)
def test_a_role_passes_through_layout(moved):
    first = NodeProto()
    first.CopyFrom(LAYOUT[moved])
    first.output[:] = ["moved"]
    model = placed([first, node("MatMul", "x moved")], {"w": random(4, 6)}, "initializer")
    for name in ("shape", "axes"):
        model.graph.initializer.append(numpy_helper.from_array(np.array([1, 1]), name))
    assert roles(model)["w"].kind == "weight"


def test_every_slot_of_the_table_has_its_role():
    rows = {"weight", "bias", "scale", "slope", "embedding", "initial state", "statistic"}
    for (domain, op_type), slots in SLOTS.items():
        for slot, kind in slots.items():
            if kind in rows:
                step = node(op_type, " ".join(["x"] * slot + ["w", "x"]), domain)
                model = placed([step], {"w": random(4, 6)}, "initializer")
                assert roles(model)["w"].kind == kind, (op_type, slot)
