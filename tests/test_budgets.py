"""What building costs, counted instead of timed: it is linear, and no weight is looked at."""

import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import helper

import blockdsl
from blockdsl import artifacts, blocks
from blockdsl.passes.replace_training_operators import replace_training_operators

COUNTED = {
    "infer_node_outputs": onnx.shape_inference,
    "infer_shapes": onnx.shape_inference,
    "check_node": onnx.checker,
    "check_model": onnx.checker,
}


class Chain(blockdsl.ForwardBlock):
    """Residual layers of four nodes each."""

    def __init__(self, layers):
        self.layers = layers

    def build(self, x):
        for _ in range(self.layers):
            x = x + 0.5 * blocks.Linear(4, 4)(x).relu()
        return x


class ManyTerms(blockdsl.Block):
    def __init__(self, terms):
        self.terms = terms

    def build(self, output):
        return sum(blockdsl.loss.MSELoss()(output) / (i + 1) for i in range(self.terms))


def forward(layers):
    with blockdsl.empty_base():
        chain = Chain(layers)
        chain(blockdsl.input("x", shape=("batch", 4)))
        return chain.to_model_proto()


def generate(model, folder, terms=1):
    artifacts.generate_artifacts(
        model,
        loss=ManyTerms(terms),
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory=folder,
    )


@pytest.fixture
def onnx_calls(monkeypatch):
    """What ONNX's checker and inference are asked, and how large the models are that they get."""
    calls, sizes = Counter(), []

    def count(name, function):
        def counted(*arguments, **settings):
            calls[name] += 1
            sizes.extend(a.ByteSize() for a in arguments if isinstance(a, onnx.ModelProto))
            return function(*arguments, **settings)

        return counted

    for name, module in COUNTED.items():
        monkeypatch.setattr(module, name, count(name, getattr(module, name)))
    return calls, sizes


def test_inferences_are_linear_in_nodes(onnx_calls, tmp_path):
    calls, _ = onnx_calls
    counts = []
    for layers in (25, 50, 250):
        calls.clear()
        generate(forward(layers), tmp_path)
        counts.append(Counter(calls))
    small, double, large = counts
    for name in COUNTED:
        assert large[name] - small[name] == 9 * (double[name] - small[name]), name
    # The whole model is looked at once when it is opened, and once for every file that is made.
    assert large["check_model"] == small["check_model"] <= 4
    assert large["infer_shapes"] == small["infer_shapes"] <= 2


def calls_in(function, *arguments):
    """How many calls a call makes."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return calls


def test_work_is_linear_in_nodes(tmp_path):
    generate(forward(5), tmp_path)  # what is cached is cached
    work = [calls_in(generate, forward(layers), tmp_path) for layers in (50, 200)]
    assert work[1] < 4.1 * work[0]


def test_training_operators_are_replaced_in_linear_time():
    def model(layers):
        """As onnxruntime-training writes it: every tensor has a type, every weight is an input."""
        names = [f"g{i}" for i in range(layers + 1)]
        nodes = [
            node
            for i, (old, new) in enumerate(pairwise(names))
            for node in (
                helper.make_node("ReluGrad", [old, f"w{i}"], [f"r{i}"], domain="com.microsoft"),
                helper.make_node("Mul", [f"r{i}", f"w{i}"], [new]),
            )
        ]
        made = [o for node in nodes for o in node.output]
        given = ["g0", *(f"w{i}" for i in range(layers))]
        infos = {
            n: helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4]) for n in given + made
        }
        graph = helper.make_graph(
            nodes,
            "chain",
            [infos[n] for n in given],
            [infos[names[-1]]],
            value_info=[infos[n] for n in made],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    replace_training_operators(model(5))
    work = [calls_in(replace_training_operators, model(layers)) for layers in (50, 200)]
    assert work[1] < 4.1 * work[0]


def test_terms_of_a_loss_cost_no_checks_of_the_model(onnx_calls, tmp_path):
    calls, _ = onnx_calls
    model, checks = forward(1), []
    for terms in (1, 10):
        calls.clear()
        generate(model, tmp_path, terms)
        checks.append((calls["check_model"], calls["infer_shapes"]))
    assert checks[0] == checks[1]


def test_no_check_sees_a_weight(onnx_calls, tmp_path):
    _, sizes = onnx_calls
    with blockdsl.empty_base() as handle:
        graph = blockdsl.graph.current()
        weight = graph.add_initializer(np.zeros((1024, 4096), np.float32), "w")
        graph.set_outputs([blockdsl.input("x", shape=("batch", 1024)) @ weight])
    assert handle.model.ByteSize() > 2**24
    generate(handle.model, tmp_path, terms=3)
    assert sizes
    assert max(sizes) < 2**16
