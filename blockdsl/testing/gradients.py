"""Check gradients against finite differences.

The oracle is independent of everything that is checked: the forward model alone, run in float64 on
ONNX's reference evaluator. For a random cotangent w and a random direction v it compares
`<w, J v>`, by central differences, with `<J^T w, v>`, from the gradient graph: one number per
input, two runs of the model, any shape.
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, numpy_helper

from blockdsl.errors import BlockWarning
from blockdsl.gradient import build_gradients
from blockdsl.graph import Graph, activate
from blockdsl.graph.tensor import FLOATS
from blockdsl.testing.precision import in_precision
from blockdsl.testing.reference import evaluate
from blockdsl.testing.tolerances import GRADIENT, MismatchError

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]

_SHOWN = 32
"""Up to this many elements, a failure lists the whole gradient beside the expected one."""


def check_gradients(
    model: ModelProto,
    feeds: Mapping[str, Any],
    of: str | Sequence[str] | None = None,
    wrt: Sequence[str] | None = None,
    order: int = 1,
    rng: np.random.Generator | None = None,
    step: float = 1e-5,
    rtol: float | None = None,
) -> None:
    """Check the gradients of a model against finite differences.

    Args:
        model: A forward model in any float type; the check runs in float64.
        feeds: A value for each of its inputs. Integers and booleans are held fixed.
        of: The outputs or intermediate tensors that are differentiated; by default every float
            output, but for statistics that are float32 whatever the model is.
        wrt: The inputs and initializers by which they are differentiated; every float one by
            default.
        order: 2 also checks the gradient graph's own gradients.
        rng: Where cotangents and directions come from.
        step: The step of the central differences.
        rtol: The relative tolerance.

    Raises:
        MismatchError: A gradient is wrong; the message says by which input, and shows both.

    Example:
        >>> import blockdsl
        >>> import numpy as np
        >>> from blockdsl.testing import check_gradients
        >>> with blockdsl.empty_base() as handle:
        ...     x = blockdsl.input("x", shape=("batch", 3))
        ...     blockdsl.graph.current().set_outputs([x * x.tanh()])
        >>> check_gradients(handle.model, {"x": np.ones((2, 3))}, order=2)
    """
    double = in_precision(model, TensorProto.DOUBLE)
    fed = _as_doubles(double, feeds)
    outputs = _double_outputs(double) if of is None else [of] if isinstance(of, str) else list(of)
    inputs = _float_inputs(double) if wrt is None else [str(name) for name in wrt]
    initializers = {t.name: t for t in double.graph.initializer}
    for name in inputs:
        if name not in fed:
            fed[name] = numpy_helper.to_array(initializers[name])
    limit = GRADIENT["float64"].rtol if rtol is None else rtol
    check = _Check(Graph(double), fed, rng or np.random.default_rng(0), step, limit)
    for depth in range(1, order + 1):
        outputs, inputs = check.differentiate(outputs, inputs, depth)


@dataclass
class _Check:
    """A graph that grows by its gradients, and values for all it reads."""

    graph: Graph
    feeds: dict[str, Array]
    rng: np.random.Generator
    step: float
    rtol: float

    def differentiate(
        self, outputs: Sequence[str], inputs: Sequence[str], depth: int
    ) -> tuple[list[str], list[str]]:
        """Append the gradients of `<w, outputs>` and check them.

        Returns:
            What the next order differentiates, and by what: these gradients, by the inputs and by
            the cotangents w.
        """
        forward = self._evaluator(outputs)
        values = forward(self.feeds)
        seeds = {f"cotangent_{depth}.{i}": self._random(v) for i, v in enumerate(values)}
        gradients = self._append(outputs, inputs, seeds)
        self.feeds.update(seeds)
        found = self._evaluator(list(gradients.values()))(self.feeds)
        objective = _Objective(forward, list(seeds.values()), self.feeds)
        for name, gradient in zip(inputs, found, strict=True):
            self._compare(objective, name, gradient, gradients[name], outputs, depth)
        return list(gradients.values()), [*inputs, *seeds]

    def _append(
        self, outputs: Sequence[str], inputs: Sequence[str], seeds: Feeds
    ) -> dict[str, str]:
        graph = self.graph
        graph.sync()
        for name, output in zip(seeds, outputs, strict=True):
            kind = graph.type_of(output)
            graph.add_input(name, kind.elem_type, kind.shape)
        of, seed = outputs[0], next(iter(seeds))
        with activate(graph), warnings.catch_warnings():
            # An input without influence has the gradient zero, which is checked like any other.
            warnings.simplefilter("ignore", BlockWarning)
            if len(outputs) == 1:
                built = build_gradients(graph, of, inputs, seed)
            else:
                terms = [
                    (graph.value(name) * graph.value(output)).sum().cast(np.float64)
                    for name, output in zip(seeds, outputs, strict=True)
                ]
                built = build_gradients(graph, functools.reduce(operator.add, terms), inputs)
        return {name: str(value) for name, value in built.items()}

    def _compare(
        self,
        objective: _Objective,
        name: str,
        gradient: Array,
        gradient_name: str,
        outputs: Sequence[str],
        depth: int,
    ) -> None:
        point = self.feeds[name]
        which = f"The gradient of {', '.join(outputs)} by {name!r}"
        if depth > 1:
            which += f" (order {depth})"
        self._check_form(which, gradient, gradient_name, point)
        if not point.size:
            return
        direction = self._random(point)
        moving = direction != 0
        got = float(np.vdot(gradient[moving], direction[moving]))
        # Where a function bends sharply, only a smaller step comes close to its slope.
        for step in (self.step, self.step / 30):
            expected = objective.slope(name, direction, step)
            scale = max(abs(expected), float(np.linalg.norm(gradient[moving])))
            allowed = self.rtol * scale + objective.noise / step
            if abs(got - expected) <= allowed:
                return
        raise MismatchError(
            f"{which} is wrong. Along a random direction its slope is {expected:.10g} by finite "
            f"differences and {got:.10g} by the gradient graph (allowed difference: "
            f"{allowed:.3g}).{self._details(objective, name, gradient)}"
        )

    def _check_form(self, which: str, gradient: Array, gradient_name: str, point: Array) -> None:
        """The shape and type of a gradient, and that the graph says what they are."""
        if gradient.shape != point.shape:
            raise MismatchError(f"{which} has the shape {gradient.shape}, not {point.shape}.")
        if gradient.dtype != point.dtype:
            raise MismatchError(f"{which} has the type {gradient.dtype}, not {point.dtype}.")
        declared = self.graph.type_of(gradient_name).shape
        fits = declared is not None and all(
            not isinstance(d, int) or d == n for d, n in zip(declared, point.shape, strict=True)
        )
        if not fits:
            raise MismatchError(f"{which} is declared {self.graph.type_of(gradient_name)}.")

    def _details(self, objective: _Objective, name: str, gradient: Array) -> str:
        if gradient.size > _SHOWN:
            return ""
        units = np.eye(gradient.size).reshape(-1, *gradient.shape)
        slopes = [objective.slope(name, unit, self.step) for unit in units]
        expected = np.array(slopes).reshape(gradient.shape)
        return f"\ngradient graph:\n{gradient}\nfinite differences:\n{expected}"

    def _evaluator(self, outputs: Sequence[str]) -> Callable[[Feeds], list[Array]]:
        snapshot = ModelProto()
        self.graph.set_outputs(outputs)
        snapshot.CopyFrom(self.graph.proto)
        return evaluate(snapshot)

    def _random(self, like: Array) -> Array:
        """A direction or cotangent: zero where there is no finite number to move."""
        drawn = self.rng.standard_normal(like.shape)
        return np.where(np.isfinite(like), drawn, 0.0).astype(like.dtype)


class _Objective:
    """`<w, f(x)>` as a function of one input at a time."""

    def __init__(
        self, forward: Callable[[Feeds], list[Array]], weights: list[Array], feeds: Feeds
    ) -> None:
        self._forward, self._weights, self._feeds = forward, weights, feeds
        values = forward(feeds)
        sizes = [np.abs(w[w != 0] * v[w != 0]) for w, v in zip(weights, values, strict=True)]
        total = sum(float(size[np.isfinite(size)].sum()) for size in sizes)
        self.noise = 1e-14 * max(total, 1.0)
        """What rounding may move a value by."""

    def slope(self, name: str, direction: Array, step: float) -> float:
        above, below = (self._run(name, sign * step * direction) for sign in (1, -1))
        # The difference first, then the sum: entries that do not move add no rounding.
        total = 0.0
        for weight, up, down in zip(self._weights, above, below, strict=True):
            moved = (up != down) & (weight != 0)
            total += float(np.vdot(weight[moved], up[moved] - down[moved]))
        return total / (2 * step)

    def _run(self, name: str, move: Array) -> list[Array]:
        return self._forward({**self._feeds, name: self._feeds[name] + move})


def _as_doubles(model: ModelProto, feeds: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {i.name: i.type.tensor_type.elem_type for i in model.graph.input}
    return {
        name: np.asarray(given, np.float64) if kinds.get(name) == TensorProto.DOUBLE else given
        for name, given in feeds.items()
    }


def _double_outputs(model: ModelProto) -> list[str]:
    """The float outputs but those that are float32 by their schema: they round too much."""
    kinds = {o.name: o.type.tensor_type.elem_type for o in model.graph.output}
    return [name for name, kind in kinds.items() if kind == TensorProto.DOUBLE]


def _float_inputs(model: ModelProto) -> list[str]:
    inputs = [i.name for i in model.graph.input if i.type.tensor_type.elem_type in FLOATS]
    initializers = [t.name for t in model.graph.initializer if t.data_type in FLOATS]
    return list(dict.fromkeys([*inputs, *initializers]))
