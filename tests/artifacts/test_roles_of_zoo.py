"""The parameters of whole models: those that PyTorch trains, found without names."""

import pytest

from blockdsl.artifacts.roles import roles
from tests.zoo import ENTRIES


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_parameters_are_those_of_pytorch(entry):
    found = roles(entry.model)
    assert {name for name, role in found.items() if role.trained} == set(entry.trained)


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_names_do_not_matter(entry):
    # Weights that the exporter had folded, `val_0`, were silently not trained.
    model = entry.model
    names = {t.name: f"val_{1000 + i}" for i, t in enumerate(model.graph.initializer)}
    for tensor in model.graph.initializer:
        tensor.name = names[tensor.name]
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    found = {name for name, role in roles(model).items() if role.trained}
    assert found == {names[name] for name in entry.trained}
