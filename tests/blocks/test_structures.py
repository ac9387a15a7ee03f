"""Blocks that return tuples, named tuples, dictionaries, lists, data classes, and nests of them."""

import dataclasses
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import blockdsl
from blockdsl.blocks.block import as_names
from blockdsl.errors import GraphError
from blockdsl.graph import Value
from blockdsl.graph.structure import leaves_of
from tests.engines import run
from tests.runs import Run, forward, generate, normal, weight

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Record:
    score: Any
    rest: Any


# A named tuple was a bare TypeError, a dictionary came back as its keys.
STRUCTURES = {
    "tuple": lambda a, b: (a, b),
    "list": lambda a, b: [a, b],
    "named tuple": Pair,
    "dictionary": lambda a, b: {"a": a, "b": b},
    "ordered dictionary": lambda a, b: OrderedDict(b=a, a=b),
    "data class": Record,
    "nest": lambda a, b: {"more": (Pair([{"deep": a}], ()), [b])},
    "one": lambda a, b: a,
}


class Structured(blockdsl.ForwardBlock):
    """The structure of two tensors; their plain names if `plain`."""

    def __init__(self, structure, plain=False):
        self.structure, self.plain = structure, plain

    def build(self, x):
        tensors = x.exp(), x.tanh()
        return self.structure(*(map(str, tensors) if self.plain else tensors))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES)
def test_the_structure_comes_back_with_values(structure, plain):
    block = Structured(structure, plain)
    with blockdsl.empty_base():
        x = blockdsl.input("x", shape=("n",))
        built = block(x)
        leaves = list(leaves_of(built))
        assert all(isinstance(leaf, Value) for leaf in leaves)
        assert (leaves[0] + leaves[-1]).shape == ("n",)
    expected = structure("Structured/Exp", "Structured/Tanh")
    assert built == expected
    assert type(built) is type(expected) or isinstance(built, Value)
    model = block.to_model_proto()
    assert [o.name for o in model.graph.output] == list(leaves_of(expected))
    assert run(model, {"x": np.zeros(2, np.float32)})[0].tolist() == [1, 1]


def test_blocks_take_structures():
    class Inner(blockdsl.Block):
        def build(self, x):
            return Pair(x * 2, {"b": x + 1})

    class Outer(blockdsl.ForwardBlock):
        def build(self, x):
            pair = Inner()(x)
            return {"sum": pair.first + pair.second["b"]}

    block = Outer()
    with blockdsl.empty_base():
        block(blockdsl.input("x", shape=("n",)))
    assert run(block.to_model_proto(), {"x": np.float32([3])})[0].tolist() == [10]


@pytest.mark.parametrize("structure", [STRUCTURES["named tuple"], STRUCTURES["dictionary"]])
def test_a_loss_and_other_outputs(structure, tmp_path, engine):
    class Loss(blockdsl.Block):
        def build(self, y):
            return structure(blockdsl.loss.MSELoss()(y), y.abs().mean())

    model = forward(lambda x: x @ weight("w", 3, 2), ("n", 3))
    opened = Run(generate(tmp_path, model, loss=Loss()), engine)
    opened.train(normal(4, 3), normal(4, 2))
    assert len(opened.evaluate(normal(4, 3), normal(4, 2))) == 2


@pytest.mark.parametrize("built", [(), {}, {"a": None}, ("x", 3), None, {1, 2}])
def test_what_holds_no_tensors_is_refused(built):
    with pytest.raises(GraphError, match="return the tensor that the model is to put out, or a tu"):
        as_names(built)
