"""hypothesis strategies: shapes, arrays, and random models made of differentiable operators.

They need hypothesis, which is no dependency of blockdsl::

    from hypothesis import given
    from blockdsl.testing import check_gradients, strategies

    @given(strategies.models())
    def test_gradients(drawn):
        check_gradients(drawn.model, drawn.feeds)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, mutually_broadcastable_shapes
from onnx import ModelProto, TensorProto

from blockdsl.graph import Value, activate, current, empty_base, input, op
from blockdsl.graph.control import close, scan

Array = npt.NDArray[Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]
Operation = Callable[[Draw, list[Value]], Any]
"""From what there is to a new value."""


@dataclass(frozen=True)
class RandomModel:
    """A model and a value for each of its inputs."""

    model: ModelProto
    feeds: dict[str, Array]

    def __repr__(self) -> str:
        nodes = ", ".join(
            f"{', '.join(n.output)} = {n.op_type}({', '.join(n.input)})"
            for n in self.model.graph.node
        )
        shapes = {name: array.shape for name, array in self.feeds.items()}
        return f"<RandomModel {shapes}: {nodes}>"


def shapes(max_rank: int = 3, max_side: int = 3) -> st.SearchStrategy[tuple[int, ...]]:
    """Small shapes, scalars included."""
    return array_shapes(min_dims=0, max_dims=max_rank, min_side=1, max_side=max_side)


def broadcastable_shapes(
    count: int = 2, max_rank: int = 3, max_side: int = 3
) -> st.SearchStrategy[tuple[tuple[int, ...], ...]]:
    """Several shapes that broadcast to one."""
    drawn = mutually_broadcastable_shapes(
        num_shapes=count, max_dims=max_rank, min_side=1, max_side=max_side
    )
    return drawn.map(lambda found: found.input_shapes)


@st.composite
def models(
    draw: Draw,
    max_nodes: int = 6,
    operations: tuple[str, ...] | None = None,
    dtype: npt.DTypeLike = np.float64,
) -> RandomModel:
    """Small acyclic models: broadcasting, fan-out, several outputs, symbolic dimensions.

    Every operation is smooth and keeps numbers small, so that finite differences are exact.

    Args:
        draw: Given by hypothesis.
        max_nodes: How many operations at most.
        operations: The names of those to choose from; all of `OPERATIONS` by default.
        dtype: The type of the floats.
    """
    found = draw(broadcastable_shapes(draw(st.integers(1, 3))))
    symbolic = draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    feeds = {f"x{i}": rng.uniform(-1, 1, s).astype(dtype) for i, s in enumerate(found)}
    with empty_base() as handle:
        values = [
            input(n, dtype, [f"{n}_{a}" for a in range(x.ndim)] if symbolic else x.shape)
            for n, x in feeds.items()
        ]
        for _ in range(draw(st.integers(1, max_nodes))):
            name = draw(st.sampled_from(operations or tuple(OPERATIONS)))
            values.append(OPERATIONS[name](draw, values))
        ends = [v for v in values if not _is_read(v)]
        current().set_outputs([v for v in ends if v not in feeds] or [values[-1]])
    return RandomModel(handle.model, feeds)


def _is_read(value: Value) -> bool:
    return any(value in node.input for node in current().proto.graph.node)


def _any(draw: Draw, values: list[Value], min_rank: int = 0) -> Value:
    """One of the values, of this rank at least if there is one."""
    found: Value = draw(st.sampled_from([v for v in values if v.rank >= min_rank] or values))
    return found


def _axes(draw: Draw, x: Value) -> list[int]:
    return sorted(draw(st.sets(st.integers(0, x.rank - 1), min_size=1))) if x.rank else []


def _unary(function: Callable[[Value], Any]) -> Operation:
    return lambda draw, values: function(_any(draw, values))


def _binary(function: Callable[[Value, Value], Any]) -> Operation:
    def build(draw: Draw, values: list[Value]) -> Any:
        a = _any(draw, values)
        partners = [v for v in values if _broadcasts(a, v)]
        return function(a, draw(st.sampled_from(partners)))

    return build


def _broadcasts(a: Value, b: Value) -> bool:
    """Whether two values surely broadcast: inputs do with each other, and what is equal does."""
    if a.is_static and b.is_static:
        pairs = zip(a.shape[::-1], b.shape[::-1], strict=False)
        return all(d == e or 1 in (d, e) for d, e in pairs)
    producers = [current().producer(v) for v in (a, b)]
    return a.rank == 0 or b.rank == 0 or a == b or producers == [None, None]


def _reduce(name: str) -> Operation:
    def build(draw: Draw, values: list[Value]) -> Any:
        x = _any(draw, values)
        axes = _axes(draw, x)
        return getattr(x, name)(axes, keepdims=draw(st.booleans())) if axes else x.tanh()

    return build


def _transpose(draw: Draw, values: list[Value]) -> Value:
    x = _any(draw, values)
    return x.transpose(*draw(st.permutations(range(x.rank)))) if x.rank else x.tanh()


def _flatten(draw: Draw, values: list[Value]) -> Value:
    return _any(draw, values).reshape(-1)


def _concat(draw: Draw, values: list[Value]) -> Value:
    x = _any(draw, values, min_rank=1)
    return op.Concat(x, x.tanh(), axis=x.rank - 1) if x.rank else x.tanh()


def _slice(draw: Draw, values: list[Value]) -> Value:
    x = _any(draw, values, min_rank=1)
    return x[..., : draw(st.integers(1, 2))] if x.rank else x.tanh()


def _outer(draw: Draw, values: list[Value]) -> Value:
    """A matrix product that always fits: x^T x."""
    x = _any(draw, values, min_rank=2)
    if x.rank < 2:
        return x.tanh()
    return (op.MatMul(x.transpose(*range(x.rank - 2), x.rank - 1, x.rank - 2), x) * 0.1).tanh()


def _softmax(draw: Draw, values: list[Value]) -> Value:
    x = _any(draw, values, min_rank=1)
    return x.softmax(draw(st.integers(0, x.rank - 1))) if x.rank else x.sigmoid()


def _choose(draw: Draw, values: list[Value]) -> Any:
    """A choice element by element, smooth but for a jump where random numbers do not lie."""
    x = _any(draw, values)
    return op.Where(x > 0.123, x, x * 0.5)


def _branch(draw: Draw, values: list[Value]) -> Any:
    """A choice of all or nothing, by branches that read what is outside."""
    x = _any(draw, values)
    bodies = {}
    for name, function in (("then_branch", Value.tanh), ("else_branch", Value.sigmoid)):
        with current().body(name) as child, activate(child):
            close(child, [function(x)])
        bodies[name] = child.proto.graph
    return op.If(x.sum() > 0.123, **bodies)


def _loop(draw: Draw, values: list[Value]) -> Any:
    """A state that is moved towards a value from outside, a few times over."""
    x = _any(draw, values)
    with current().body("body") as child, activate(child):
        names = child.names
        child.add_input(names.unique("step"), TensorProto.INT64, [])
        going = child.add_input(names.unique("going"), TensorProto.BOOL, [])
        state = child.add_input(names.unique("state"), x.elem_type, x.shape)
        close(child, [going, (state * 0.5 + x).tanh()])
    return op.Loop(draw(st.integers(0, 3)), None, x.sigmoid(), body=child.proto.graph)


def _scan(draw: Draw, values: list[Value]) -> Any:
    """A running sum that forgets."""
    x = _any(draw, values, min_rank=1)
    if not x.rank:
        return x.tanh()

    def step(states: list[Value], slices: list[Value]) -> tuple[list[Value], list[Value]]:
        state = (states[0] * 0.5 + slices[0]).tanh()
        return [state], [state]

    return scan(step, [x.mean(0)], [x], reverse=draw(st.booleans()))[1][0]


OPERATIONS: dict[str, Operation] = {
    "tanh": _unary(Value.tanh),
    "sigmoid": _unary(Value.sigmoid),
    "neg": _unary(lambda x: -x),
    "bell": _unary(lambda x: (-x * x).exp()),
    "root": _unary(lambda x: (1 + x * x).sqrt()),
    "add": _binary(lambda a, b: (a + b) * 0.5),
    "sub": _binary(lambda a, b: a - b),
    "mul": _binary(lambda a, b: a * b),
    "div": _binary(lambda a, b: a / (1 + b * b)),
    "sum": _reduce("sum"),
    "mean": _reduce("mean"),
    "transpose": _transpose,
    "flatten": _flatten,
    "concat": _concat,
    "slice": _slice,
    "outer": _outer,
    "softmax": _softmax,
    "choose": _choose,
    "branch": _branch,
    "loop": _loop,
    "scan": _scan,
}
"""What the models of `models` are made of."""
