"""Which engine is used."""

from __future__ import annotations

import pytest

from blockdsl.backend import select
from blockdsl.backend.select import describe, select_engine
from blockdsl.errors import EngineError


@pytest.mark.parametrize("training_wheel", [True, False])
@pytest.mark.parametrize(
    ("argument", "variable", "chosen"),
    [
        (None, None, None),
        (None, "", None),
        ("session", None, "session"),
        (None, "session", "session"),
        ("session", "training", "session"),
        ("training", "session", "training"),
        (None, "training", "training"),
    ],
)
def test_selection(monkeypatch, training_wheel, argument, variable, chosen):
    monkeypatch.setattr(select, "has_training_api", lambda: training_wheel)
    environment = {} if variable is None else {select.VARIABLE: variable}
    if chosen == "training" and not training_wheel:
        with pytest.raises(EngineError, match=r"'training' needs onnxruntime-training"):
            select_engine(argument, environment)
        return
    best = "training" if training_wheel else "session"
    assert select_engine(argument, environment) == (chosen or best)


@pytest.mark.parametrize(
    ("argument", "variable", "message"),
    [
        ("sesion", None, "no engine engine='sesion'.*Did you mean 'session'"),
        (None, "torch", "no engine BLOCKDSL_ENGINE='torch'.*'session' .* and 'training'"),
        ("", None, "no engine engine=''"),
    ],
)
def test_unknown_engines_are_named(argument, variable, message):
    environment = {} if variable is None else {select.VARIABLE: variable}
    with pytest.raises(EngineError, match=message):
        select_engine(argument, environment)


def test_description():
    facts = describe({select.VARIABLE: "session"})
    assert facts["engine"] == "session (BLOCKDSL_ENGINE is set)"
    assert "CPUExecutionProvider" in facts["providers"]
    assert "onnxruntime" in facts["wheel"]
    assert "problem" not in facts


def test_description_of_a_broken_choice_names_the_problem():
    assert "There is no engine" in describe({select.VARIABLE: "tpu"})["problem"]
