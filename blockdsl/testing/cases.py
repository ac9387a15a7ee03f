"""One row of a test table: an operator, random inputs for it, and what is known of it.

`Case("Div", [R(2, 3), R(3, low=0.3)])` is a model of one node. The test suite buys a whole battery
for it: the value against NumPy, the reference evaluator and ONNX Runtime, the gradient against
finite differences, the gradient's gradient, symbolic shapes, every float type, every opset named.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto

from blockdsl.graph import Graph, Value, current, empty_base, input, op
from blockdsl.graph.op import emit
from blockdsl.graph.schema import newest, operator
from blockdsl.graph.tensor import TensorType, elem_type_of

Array = npt.NDArray[Any]

DEFAULT_OPSET = 17
"""The opset of a case that names none, unless its operator came later."""


class R:
    """A random input of a case.

    Args:
        *shape: Its dimensions.
        low: Floats are at least this; -1.5 by default.
        high: Floats are less than this; 1.5 by default.
        away: Floats are at least this far from zero.
        dtype: Its element type; by default the float type that the case runs in.
        ints: Integers below this number, or in this range, instead of floats.
        values: These values instead of random ones, given to the model when it runs. (What is to
            be a constant of the model is no `R`: write the list or array itself.)
        static: Keep the shape static when the case runs with symbolic ones.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> R(2, 3, low=0.5).draw(rng, np.float64).shape
        (2, 3)
        >>> R(4, ints=(-2, 2)).draw(rng, np.float64).dtype
        dtype('int64')
        >>> R(values=[[1, 2], [3, 4]]).draw(rng, np.float32)
        array([[1, 2],
               [3, 4]])
    """

    def __init__(
        self,
        *shape: int,
        low: float | None = None,
        high: float | None = None,
        away: float = 0.0,
        dtype: npt.DTypeLike | None = None,
        ints: int | tuple[int, int] | None = None,
        values: Any = None,
        static: bool = False,
    ) -> None:
        self.values = None if values is None else np.asarray(values)
        self.shape = shape if self.values is None else self.values.shape
        self.low = low if low is not None else min(-1.5, (high or 0.0) - 1)
        self.high = high if high is not None else max(1.5, self.low + 1)
        self.away = away
        self.ints = (0, ints) if isinstance(ints, int) else ints
        self.dtype = None if dtype is None else np.dtype(dtype)
        if self.dtype is None and self.ints is not None:
            self.dtype = np.dtype(np.int64)
        elif self.dtype is None and self.values is not None and self.values.dtype.kind != "f":
            self.dtype = self.values.dtype
        self.static = static

    def draw(self, rng: np.random.Generator, float_type: npt.DTypeLike) -> Array:
        """An array as described, of the given type if it is the case's float type."""
        dtype = self.dtype or np.dtype(float_type)
        if self.values is not None:
            return self.values.astype(dtype)
        if self.ints is not None:
            return rng.integers(*self.ints, self.shape).astype(dtype)
        if dtype.kind == "b":
            return rng.integers(0, 2, self.shape).astype(dtype)
        drawn = rng.uniform(self.low, self.high, self.shape)
        if self.away:
            drawn = np.where(
                np.abs(drawn) < self.away, np.copysign(self.away, drawn) + drawn, drawn
            )
        return np.asarray(drawn).astype(dtype)

    @property
    def is_float(self) -> bool:
        """Whether it is of the case's float type."""
        return self.dtype is None

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        return shape if self.dtype is None else f"{shape}:{self.dtype}"


class Case:
    """One row: an operator with inputs and attributes, or anything that `build` makes of inputs.

    Args:
        op_type: The operator.
        inputs: In the schema's order: an `R` for an input of the model, a number, list or array
            for a constant, None for an optional input that is left out.
        domain: The operator's domain.
        opset: The opset of the model, or a list: the case then runs at each.
        outputs: How many outputs the node has.
        of: The indices of the outputs that are differentiated; all of float type by default.
        wrt: The indices of the inputs by which; all random ones of float type by default.
        order: 1 where the second derivative does not exist.
        symbolic: Whether the case also runs with every dimension a name.
        engines: Whether ONNX Runtime has kernels for the operator.
        expected: A NumPy function from the inputs to the output, or outputs.
        rtol: A relative tolerance for the comparison with finite differences.
        parity: A relative tolerance for the comparison with ONNX Runtime in float32.
        build: Builds the graph instead: takes the inputs as values, returns one or several.
        name: What to call the case.
        **attributes: The operator's attributes, and inputs by name. A function is called with the
            ONNX element type of the case's floats (a subgraph depends on it).

    Example:
        >>> case = Case("Gemm", [R(2, 3), R(4, 3), None], transB=1, alpha=0.5)
        >>> print(case)
        Gemm-2x3-4x3-None-alpha=0.5-transB=1
        >>> [node.op_type for node in case.model().graph.node]
        ['Gemm']
    """

    def __init__(
        self,
        op_type: str,
        inputs: Sequence[Any] = (),
        *,
        domain: str = "",
        opset: int | Sequence[int] | None = None,
        outputs: int | None = None,
        of: Sequence[int] | None = None,
        wrt: Sequence[int] | None = None,
        order: int = 2,
        symbolic: bool = True,
        engines: bool = True,
        expected: Callable[..., Any] | None = None,
        rtol: float | None = None,
        parity: float | None = None,
        build: Callable[..., Any] | None = None,
        name: str | None = None,
        **attributes: Any,
    ) -> None:
        floats = [i for i, given in enumerate(inputs) if isinstance(given, R) and given.is_float]
        self.op_type, self.domain = op_type, domain
        self.inputs, self.attributes = tuple(inputs), attributes
        self.opsets = _opsets(op_type, domain, opset)
        self.opset = self.opsets[0]
        self.outputs = outputs
        self.of = None if of is None else tuple(of)
        self.wrt = tuple(floats if wrt is None else wrt)
        self.order = order
        self.symbolic = symbolic
        self.engines = engines
        self.expected = expected
        self.rtol = rtol
        self.parity = parity
        self.build = build
        self.name = name

    def at_each_opset(self) -> Iterator[Case]:
        """This case once for every opset it names."""
        for opset in self.opsets:
            twin = copy.copy(self)
            twin.opset, twin.opsets = opset, (opset,)
            yield twin

    def input_names(self) -> list[str]:
        """The name of every input, from the schema where it has one."""
        form = newest(self.op_type, self.domain)
        known = form.inputs if form is not None and self.build is None else ()
        return [
            known[i].name if i < len(known) and not known[i].variadic else f"x{i}"
            for i in range(len(self.inputs))
        ]

    def wrt_names(self) -> list[str]:
        """The inputs by which the case is differentiated."""
        names = self.input_names()
        return [names[i] for i in self.wrt]

    def model(self, dtype: npt.DTypeLike = np.float32, symbolic: bool = False) -> ModelProto:
        """The model of this case.

        Args:
            dtype: The type of its floats.
            symbolic: Give every dimension of its inputs a name instead of a size.
        """
        with empty_base(self.opset) as handle:
            values = [
                self._input(i, name, given, np.dtype(dtype), symbolic)
                for i, (name, given) in enumerate(zip(self.input_names(), self.inputs, strict=True))
            ]
            made = self._made(current(), values, np.dtype(dtype))
            current().set_outputs(made)
        return handle.model

    def feeds(
        self, rng: np.random.Generator, dtype: npt.DTypeLike = np.float32
    ) -> dict[str, Array]:
        """A value for every input of the model."""
        return {
            name: given.draw(rng, self._type_of(i, given, np.dtype(dtype)))
            for i, (name, given) in enumerate(zip(self.input_names(), self.inputs, strict=True))
            if isinstance(given, R)
        }

    def differentiated(self, model: ModelProto) -> list[str]:
        """The outputs of its model that are differentiated."""
        outputs = model.graph.output
        if self.of is not None:
            return [outputs[i].name for i in self.of]
        kinds = [TensorType.of(o.type) for o in outputs]
        return [o.name for o, kind in zip(outputs, kinds, strict=True) if kind and kind.is_float]

    def _type_of(self, index: int, given: R, dtype: np.dtype) -> np.dtype:
        """The element type of an input: some are float32 whatever the others are."""
        form = newest(self.op_type, self.domain)
        if given.dtype is None and form is not None and self.build is None and form.inputs:
            kind = form.inputs[min(index, len(form.inputs) - 1)].type
            if kind == "tensor(float)":
                return np.dtype(np.float32)
        return given.dtype or dtype

    def _input(self, index: int, name: str, given: Any, dtype: np.dtype, symbolic: bool) -> Any:
        if isinstance(given, R):
            names = symbolic and not given.static
            shape = [f"d{index}_{axis}" if names else n for axis, n in enumerate(given.shape)]
            return input(name, self._type_of(index, given, dtype), shape)
        if isinstance(given, list | tuple | np.ndarray):
            array = np.asarray(given)
            return array.astype(dtype) if array.dtype == np.float64 else array
        return given

    def _made(self, graph: Graph, values: list[Any], dtype: np.dtype) -> list[Value]:
        if self.build is not None:
            constants = [v if isinstance(v, Value) or v is None else op.Identity(v) for v in values]
            made = self.build(*constants)
        else:
            elem_type = elem_type_of(dtype)
            settings = {
                key: value(elem_type) if callable(value) else value
                for key, value in self.attributes.items()
            }
            made = emit(graph, self.domain, self.op_type, values, settings, self.outputs)
        return [made] if isinstance(made, Value) else list(made)

    def __str__(self) -> str:
        if self.name is not None:
            parts = [self.op_type, self.name]
        else:
            attributes = [f"{k}={_shown(v)}" for k, v in sorted(self.attributes.items())]
            parts = [self.op_type, *map(_shown, self.inputs), *attributes]
            if self.outputs:
                parts.append(f"outputs={self.outputs}")
        if self.opset != _opsets(self.op_type, self.domain, None)[0]:
            parts.append(f"opset{self.opset}")
        return "-".join(parts)

    def __repr__(self) -> str:
        return f"<Case {self}>"


def _opsets(op_type: str, domain: str, given: int | Sequence[int] | None) -> tuple[int, ...]:
    if given is not None:
        return (given,) if isinstance(given, int) else tuple(given)
    latest = None if domain else newest(op_type)
    if latest is None:
        return (DEFAULT_OPSET,)
    later = range(DEFAULT_OPSET, max(DEFAULT_OPSET, latest.version) + 1)
    return (next((v for v in later if operator(op_type, v) is not None), latest.version),)


def _shown(given: Any) -> str:
    if isinstance(given, list | tuple | np.ndarray):
        array = np.asarray(given)
        return str(array.tolist()).replace(" ", "") if array.size <= 8 else f"constant{array.shape}"
    if callable(given):
        return getattr(given, "__name__", "graph").strip("<>")
    return str(given)
