"""How the session engine rewrites a training model."""

from __future__ import annotations

import onnx
import pytest
from onnx import parser

from blockdsl.backend.session.graph import accumulate_form, overwrite_form
from blockdsl.errors import EngineError
from tests import session_models

PARAMETERS = {"weight", "fc.bias", "scale", "running"}


def test_overwrite_form():
    form = overwrite_form(session_models.model(session_models.TRAINING), PARAMETERS)
    assert form.inputs == ["x", "target"]
    assert form.outputs == ["loss", "y"]
    assert form.parameters == ["weight", "fc.bias", "scale", "running"]
    assert form.gradients == {"weight": "dw", "fc.bias": "db"}
    assert form.updates == {"running": "running_new"}
    assert [v.name for v in form.model.graph.input] == [*form.inputs, *form.parameters]
    assert [v.name for v in form.model.graph.output] == ["loss", "y", "dw", "db", "running_new"]
    assert str(form.types()["weight"]) == "float32[3, 2]"
    assert not form.model.functions
    onnx.checker.check_model(form.model, full_check=True)


def test_accumulate_form():
    form = overwrite_form(session_models.model(session_models.TRAINING), PARAMETERS)
    before = form.model.SerializeToString()
    model, old, new = accumulate_form(form)
    assert form.model.SerializeToString() == before
    assert [v.name for v in model.graph.input][-2:] == list(old.values())
    outputs = [v.name for v in model.graph.output]
    assert outputs == ["loss", "y", *new.values(), "running_new"]
    onnx.checker.check_model(model, full_check=True)


# Each a training model of parameters p and q (float[2]): (inputs, outputs, nodes) -> what the
# gradients and statistics are called in the end.
ACC = "com.microsoft.InPlaceAccumulatorV2"
BUFFERS = 'float[2] "p_grad.accumulation.buffer", float[2] "q_grad.accumulation.buffer"'
FLAGS = 'bool[1] "p_grad.accumulation.out", bool[1] "q_grad.accumulation.out"'
ACC_P = f'"p_grad.accumulation.out" = {ACC}("p_grad.accumulation.buffer", %s, lazy_reset_grad)'
ACC_Q = f'"q_grad.accumulation.out" = {ACC}("q_grad.accumulation.buffer", %s, lazy_reset_grad)'


def training(nodes: str, extra_outputs: str = "", initializers: str = "") -> onnx.ModelProto:
    return parser.parse_model(f"""{session_models.HEADER}
    graph (float[2] x, float[2] p, float[2] q, {BUFFERS}, bool[1] lazy_reset_grad)
       => (float[2] loss, {FLAGS}{extra_outputs}) <{initializers}> {{ {nodes} }}
    {session_models.ACCUMULATOR}""")


@pytest.mark.parametrize(
    ("nodes", "gradients"),
    [
        # d(p * q) = q and p: gradients that are inputs
        (f"loss = Mul(p, q) {ACC_P % 'q'} {ACC_Q % 'p'}", {"p": "p_grad", "q": "q_grad"}),
        # d(p + q): both gradients are one tensor
        (
            f"loss = Add(p, q) g = Identity(x) {ACC_P % 'g'} {ACC_Q % 'g'}",
            {"p": "g", "q": "q_grad"},
        ),
        # the gradient is the loss
        (f"loss = Exp(p) g = Neg(q) {ACC_P % 'loss'} {ACC_Q % 'g'}", {"p": "p_grad", "q": "g"}),
        # the name that we would like is taken
        (
            f"p_grad = Exp(p) loss = Neg(p_grad) {ACC_P % 'x'} {ACC_Q % 'p_grad'}",
            {"p": "p_grad.2", "q": "p_grad"},
        ),
    ],
)
def test_every_gradient_becomes_an_output_of_its_own(nodes, gradients):
    form = overwrite_form(training(nodes), {"p", "q"})
    assert form.gradients == gradients
    onnx.checker.check_model(form.model, full_check=True)
    onnx.checker.check_model(accumulate_form(form)[0], full_check=True)


def test_a_constant_gradient():
    nodes = f"loss = Add(p, q) {ACC_P % 'ones'} {ACC_Q % 'x'}"
    form = overwrite_form(training(nodes, initializers="float[2] ones = {1, 1}"), {"p", "q"})
    assert form.gradients == {"p": "p_grad", "q": "q_grad"}
    onnx.checker.check_model(form.model, full_check=True)


def test_functions_that_are_still_called_stay():
    model = session_models.model(
        session_models.TRAINING.replace("e = Sub(y, target)", "e = com.microsoft.Minus(y, target)")
        + '<domain: "com.microsoft", opset_import: ["": 17, "com.microsoft": 1]>'
        "Minus (a, b) => (c) { c = com.microsoft.Less(a, b) }"
        '<domain: "com.microsoft", opset_import: ["": 17]> Less (a, b) => (c) { c = Sub(a, b) }'
    )
    form = overwrite_form(model, PARAMETERS)
    assert [f.name for f in form.model.functions] == ["Minus", "Less"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (PARAMETERS - {"weight"}, r"gradient of 'weight', which the checkpoint does not have"),
        (PARAMETERS - {"running"}, r"accumulates into 'running', which is neither"),
        (set(), "There are none"),
    ],
)
def test_foreign_checkpoints_are_refused(parameters, message):
    with pytest.raises(EngineError, match=message):
        overwrite_form(session_models.model(session_models.TRAINING), parameters)


@pytest.mark.parametrize("flag", ["always = {0}", "lazy_reset_grad"])
def test_statistics_are_overwritten_in_every_step(flag):
    text = session_models.TRAINING
    if flag == "lazy_reset_grad":
        text = text.replace("running, running_new, always", "running, running_new, lazy_reset_grad")
    else:
        text = text.replace("always = {1}", flag)
    with pytest.raises(EngineError, match="updates the parameter 'running' with a flag"):
        overwrite_form(session_models.model(text), PARAMETERS)
