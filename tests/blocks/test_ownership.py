"""A block owns its parameters: one set in a model, named by the attributes that hold the block."""

from __future__ import annotations

import copy
import pickle
import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
from onnx import numpy_helper

import blockdsl
from blockdsl import blocks
from blockdsl.blocks import Linear
from blockdsl.errors import OpError


def x_of(*shape, name="x", dtype="float32"):
    return blockdsl.input(name, dtype, ("N", *shape))


def arrays(model):
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def weights(handle):
    """The names of the parameters of a model, without what its constants are called."""
    return [name for name in arrays(handle.model) if not name.startswith("constant/")]


class Net(blockdsl.Block):
    """Layers by name; `order` is that of the calls."""

    def __init__(self, order, **layers):
        self.order = order
        vars(self).update(layers)

    def build(self, x):
        for name in self.order:
            x = getattr(self, name)(x)
        return x


class OnTheFly(blockdsl.Block):
    def build(self, x):
        return Linear(4, 4, bias=False)(Linear(4, 4, bias=False)(x).tanh())


class Lazy(blockdsl.Block):
    layer = None

    def build(self, x):
        if self.layer is None:
            self.layer = Linear(4, 4, bias=False)
        return self.layer(x)


class Anew(blockdsl.Block):
    def build(self, x):
        self.layer = Linear(4, 4, bias=False)
        return self.layer(x)


class Slots(blockdsl.Block):
    __slots__ = ("__hidden", "layer", "unset")

    def __init__(self):
        self.layer = Linear(4, 4, bias=False)
        self.__hidden = Linear(4, 4, bias=False)

    def build(self, x):
        return self.__hidden(self.layer(x))


@dataclass
class Data(blockdsl.Block):
    """Equal to others like it, and not hashable."""

    heads: dict = field(
        default_factory=lambda: {"policy": Linear(4, 4, bias=False), 3: [Linear(4, 4, bias=False)]}
    )

    def build(self, x):
        return self.heads[3][0](self.heads["policy"](x))


class OfTheClass(blockdsl.Block):
    layer = Linear(4, 4, bias=False)

    def build(self, x):
        return self.layer(x)


class Private(blockdsl.Block):
    def __init__(self):
        self._child = Linear(4, 4, bias=False)

    @property
    def child(self):
        return self._child

    def build(self, x):
        return self.child(x)


class Deep(blockdsl.Block):
    """It calls the blocks of a block that it holds, and never that block."""

    def __init__(self):
        self.decoder = Private()
        self.stack = [(OnTheFly(), Linear(4, 4, bias=False))]

    def build(self, x):
        return self.stack[0][1](self.decoder._child(x))


KINDS = [
    (OnTheFly, ["OnTheFly/Linear.weight", "OnTheFly/Linear_1.weight"]),
    (Lazy, ["Lazy/layer.weight"]),
    (OfTheClass, ["OfTheClass/layer.weight"]),
    (Anew, ["Anew/layer.weight"]),
    (Slots, ["Slots/layer.weight", "Slots/_Slots__hidden.weight"]),
    (Data, ["Data/heads.policy.weight", "Data/heads.3.0.weight"]),
    (Private, ["Private/_child.weight"]),
    (Deep, ["Deep/decoder/_child.weight", "Deep/stack.0.1.weight"]),
    (
        lambda: Net(["b", "a"], a=OnTheFly(), b=Lazy()),
        ["Net/b/layer.weight", "Net/a/Linear.weight", "Net/a/Linear_1.weight"],
    ),
    (lambda: Net(["a"], a=blocks.Sequential(Linear(4, 4, bias=False))), ["Net/a/blocks.0.weight"]),
]


@pytest.mark.parametrize(("make", "expected"), KINDS, ids=[str(names[0]) for _, names in KINDS])
def test_one_set_however_often_it_is_called(make, expected):
    # Every call used to add parameters of its own, so that nothing was shared.
    for _ in range(2):  # the same in every build
        block = make()
        with blockdsl.empty_base() as handle:
            x = x_of(4)
            difference = block(x) - block(block(x_of(4, name="other")))
        assert weights(handle) == expected
        assert difference.shape == ("N", 4)


def test_two_blocks_of_a_class_are_two_sets():
    with blockdsl.empty_base() as handle:
        x = x_of(4)
        first, second = Linear(4, 4, bias=False), Linear(4, 4, bias=False)
        second(first(first(x)))
    values = arrays(handle.model)
    assert list(values) == ["Linear.weight", "Linear_1.weight"]
    assert (values["Linear.weight"] != values["Linear_1.weight"]).any()


def test_a_replaced_layer_is_another_one():
    net = Net(["layer"], layer=Linear(4, 4, bias=False))
    with blockdsl.empty_base() as handle:
        y = net(x_of(4))
        net.layer = Linear(4, 4, bias=False)
        net(y)
    assert weights(handle) == ["Net/layer.weight", "Net/layer_1.weight"]


def test_blocks_from_elsewhere_are_told_apart():
    class Through(blockdsl.Block):
        def build(self, block, x):
            return block(x)

    through, one, two = Through(), Linear(4, 4, bias=False), Linear(4, 4, bias=False)
    with blockdsl.empty_base() as handle:
        x = x_of(4)
        for block in (one, two, one):
            x = through(block, x)
    assert weights(handle) == ["Through/Linear.weight", "Through/Linear_1.weight"]


def test_blocks_made_for_another_block_are_told_apart():
    class Twice(blockdsl.Block):
        def __init__(self):
            self.wrap = Net([])
            self.wrap.build = lambda block, x: block(x)

        def build(self, x):
            for _ in range(2):
                x = self.wrap(Linear(4, 4, bias=False), x)
            return x

    twice = Twice()
    with blockdsl.empty_base() as handle:
        twice(twice(x_of(4)))
    assert weights(handle) == ["Twice/wrap/Linear.weight", "Twice/wrap/Linear_1.weight"]


def names_of(order, **layers):
    with blockdsl.empty_base() as handle:
        Net(order, **layers)(x_of(4))
    return arrays(handle.model)


def test_names_follow_attributes_not_calls():
    # Swapped calls used to swap the names: a checkpoint of equal shapes loaded the wrong way round.
    make = lambda: {"a": Linear(4, 4), "b": Linear(4, 4)}  # noqa: E731
    one, other = names_of("ab", **make()), names_of("ba", **make())
    more = names_of("acb", a=Linear(4, 4), c=Linear(4, 4), b=Linear(4, 4))
    assert set(one) == set(other) < set(more)
    for name, array in one.items():
        np.testing.assert_array_equal(other[name], array)
        np.testing.assert_array_equal(more[name], array)


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_shared_child_has_the_name_of_its_first_holder(order):
    shared = Linear(4, 4, bias=False)
    layers = {"a": Net(["inner"], inner=shared), "b": Net(["inner"], inner=shared)}
    assert list(names_of(order, **layers)) == ["Net/a/inner.weight"]
    assert list(names_of(order, **layers, direct=shared)) == ["Net/direct.weight"]


def test_nodes_use_the_same_scope():
    net = Net(["encoder"], encoder=Linear(4, 4))
    with blockdsl.empty_base() as handle:
        net(net(x_of(4)))
    assert [n.name for n in handle.model.graph.node] == ["Net/encoder/Gemm", "Net/encoder/Gemm_1"]


def test_a_second_model_has_a_set_of_its_own():
    net, seen = Net(["a"], a=Linear(4, 4)), []
    for _ in range(2):
        with blockdsl.empty_base() as handle:
            net(x_of(4))
        seen.append(arrays(handle.model))
    with blockdsl.base(handle.model) as extended:  # which has a Net already
        net(blockdsl.graph.current().value("Net/a/Gemm"))
    assert list(seen[0]) == list(seen[1]) == ["Net/a.weight", "Net/a.bias"]
    np.testing.assert_array_equal(seen[0]["Net/a.weight"], seen[1]["Net/a.weight"])
    values = arrays(extended.model)
    assert list(values)[2:] == ["Net_1/a.weight", "Net_1/a.bias"]
    assert (values["Net/a.weight"] != values["Net_1/a.weight"]).any()


def test_threads_share_nothing():
    net, results = Net(["a"], a=Linear(4, 4)), {}

    def build(number):
        for _ in range(10):
            with blockdsl.empty_base() as handle:
                net(net(x_of(4)))
            results.setdefault(number, []).append(weights(handle))

    threads = [threading.Thread(target=build, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one for many in results.values() for one in many] == [
        ["Net/a.weight", "Net/a.bias"]
    ] * 40


def test_copies_are_blocks_of_their_own():
    net = Net(["a"], a=Linear(4, 4, bias=False))
    with blockdsl.empty_base() as handle:
        y = net(x_of(4))
        copy.deepcopy(net)(y)
    assert weights(handle) == ["Net/a.weight", "Net_1/a.weight"]
    assert isinstance(pickle.loads(pickle.dumps(net)).a, Linear)


@pytest.mark.parametrize(
    ("block", "inputs", "message"),
    [
        (
            Linear(4, 4),
            [("float32", (4,)), ("float64", (4,))],
            r"'Linear.weight' is float32\[4, 4\]",
        ),
        (blocks.Conv(4, 4, 3), [("float32", (4, 9)), ("float32", (4, 9, 9))], "one set of param"),
        (blocks.BatchNorm(4), [("float32", (4, 9)), ("float16", (4, 9))], "Make another block for"),
    ],
    ids=["Linear", "Conv", "BatchNorm"],
)
def test_a_second_call_must_fit(block, inputs, message):
    first, second = inputs
    with blockdsl.empty_base():
        block(x_of(*first[1], dtype=first[0]))
        with pytest.raises(OpError, match=message):
            block(x_of(*second[1], name="other", dtype=second[0]))
