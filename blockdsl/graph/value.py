"""`Value`: the name of a tensor that knows its type and has operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from blockdsl.errors import GraphError, OpError
from blockdsl.graph.tensor import (
    Axes,
    Shape,
    TensorType,
    axes_in,
    elem_type_of,
    is_static,
    np_dtype,
)

if TYPE_CHECKING:
    from blockdsl.graph.model import Graph

_NUMBERS = (bool, int, float, np.generic, np.ndarray)

Operand = Any
"""A `Value`, the name of a tensor, a number or an array."""


class Value(str):
    """A tensor of the model under construction.

    It *is* the tensor's name, so that whatever takes names takes it (`onnx.helper.make_node`, say),
    and it has the operators of an array, each of which appends a node. `==` compares two names, as
    of any strings, and nothing else: write `a.equal(b)` for the operator.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base() as handle:
        ...     p = blockdsl.input("p", shape=("batch", 3))
        ...     t = blockdsl.input("t", shape=("batch", 3))
        ...     loss = (p - t).abs().mean()
        ...     print(loss, loss.type)
        ReduceMean float32[]
        >>> [node.op_type for node in handle.model.graph.node]
        ['Sub', 'Abs', 'ReduceMean']
    """

    _graph: Graph

    __array_ufunc__ = None  # an array on the left leaves the operator to the value on the right

    def __new__(cls, name: str, graph: Graph) -> Value:
        """A tensor of that name in a graph."""
        self = super().__new__(cls, name)
        self._graph = graph
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    def __str__(self) -> str:
        return str.__str__(self)

    @property
    def graph(self) -> Graph:
        """The model under construction that the tensor belongs to."""
        return self._graph

    # -- what is known -------------------------------------------------------------------------

    @property
    def type(self) -> TensorType:
        """The element type and shape."""
        return self._graph.type_of(self)

    @property
    def elem_type(self) -> int:
        """The element type as an `onnx.TensorProto.DataType`."""
        return self.type.elem_type

    @property
    def dtype(self) -> np.dtype:
        """The element type as NumPy's."""
        return np_dtype(self.elem_type)

    @property
    def shape(self) -> Shape:
        """The dimensions: an integer, the name of a symbolic size, or None for each.

        Raises:
            GraphError: Not even the rank is known.
        """
        shape = self.type.shape
        if shape is None:
            raise GraphError(
                f"The rank of {str(self)!r} is not known, and this needs it. Give the tensor a "
                f"value_info with a shape (symbolic dimensions are fine)."
            )
        return shape

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every dimension is a known integer."""
        return is_static(self.type.shape)

    @property
    def constant(self) -> np.ndarray | None:
        """The value, when the tensor is a small constant."""
        return self._graph.constant_value(self)

    # -- what a string can do and a tensor cannot ----------------------------------------------

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _NUMBERS):
            raise OpError(
                f"{str(self)!r} is a tensor whose elements are not known while the model is built, "
                f"and == and != compare names: write x.equal({other!r}), or ~x.equal({other!r})."
            )
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __bool__(self) -> bool:
        if self._graph.is_tensor(self) and self.elem_type == TensorProto.BOOL:
            raise OpError(
                f"Whether {str(self)!r} is true is not known while the model is built: choose with "
                f"op.Where(condition, a, b); the larger of two tensors is op.Max(a, b)."
            )
        return len(self) > 0

    def __iter__(self) -> Iterator[str]:
        raise OpError(
            f"{str(self)!r} is one tensor, which cannot be iterated over or unpacked. Its parts "
            f"are x[0], x[1], ...; an operator gives several tensors with outputs=2."
        )

    # -- operators -----------------------------------------------------------------------------

    def _op(self, name: str, *inputs: Operand, **attributes: Any) -> Value:
        from blockdsl.graph.op import emit, open_graph

        result: Value = emit(open_graph(self), "", name, inputs, attributes)
        return result

    def __add__(self, other: Operand) -> Value:
        if _is_text(self._graph, other):
            return str.__add__(self, other)  # type: ignore[return-value]
        return self._op("Add", self, other)

    def __radd__(self, other: Operand) -> Value:
        if _is_text(self._graph, other):
            return str.__add__(other, self)  # type: ignore[return-value]
        return self._op("Add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self._op("Sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self._op("Sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self._op("Mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self._op("Mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self._op("Div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self._op("Div", other, self)

    def __pow__(self, other: Operand) -> Value:
        exponent = other if isinstance(other, str) else np.asarray(other, self.dtype)
        return self._op("Pow", self, exponent)

    def __rpow__(self, other: Operand) -> Value:
        base = other if isinstance(other, str) else np.asarray(other, self.dtype)
        return self._op("Pow", base, self)

    def __matmul__(self, other: Operand) -> Value:
        return self._op("MatMul", self, other)

    def __rmatmul__(self, other: Operand) -> Value:
        return self._op("MatMul", other, self)

    def __neg__(self) -> Value:
        return self._op("Neg", self)

    def __abs__(self) -> Value:
        return self._op("Abs", self)

    def __lt__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._compared("Less", other)

    def __gt__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._compared("Greater", other)

    def _compared(self, name: str, other: Operand) -> Value:
        """A comparison, of integers too: before opset 9 the operators take floats alone."""
        if self.type.is_float or self.graph.opset() >= 9:
            return self._op(name, self, other)
        wide = other.cast(TensorProto.DOUBLE) if isinstance(other, Value) else other
        return self._op(name, self.cast(TensorProto.DOUBLE), wide)

    def __le__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._op("Not", self > other)

    def __ge__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._op("Not", self < other)

    def __and__(self, other: Operand) -> Value:
        return self._op("And", self, other)

    def __or__(self, other: Operand) -> Value:
        return self._op("Or", self, other)

    def __invert__(self) -> Value:
        return self._op("Not", self)

    def __getitem__(self, key: Any) -> Value:
        from blockdsl.graph.slicing import take

        return take(self, key)

    # -- methods -------------------------------------------------------------------------------

    def equal(self, other: Operand) -> Value:
        """`self == other`, element by element."""
        return self._op("Equal", self, other)

    def abs(self) -> Value:
        """`|x|`."""
        return self._op("Abs", self)

    def exp(self) -> Value:
        """`e ** x`."""
        return self._op("Exp", self)

    def log(self) -> Value:
        """The natural logarithm."""
        return self._op("Log", self)

    def sqrt(self) -> Value:
        """The square root."""
        return self._op("Sqrt", self)

    def square(self) -> Value:
        """`x * x`."""
        return self._op("Mul", self, self)

    def sigmoid(self) -> Value:
        """`1 / (1 + e ** -x)`."""
        return self._op("Sigmoid", self)

    def log_sigmoid(self) -> Value:
        """`log(sigmoid(x)) = -softplus(-x)`, without overflow."""
        return -(-self).softplus()

    def softplus(self) -> Value:
        """`log(1 + e ** x) = x / 2 + |x| / 2 + log(1 + e ** -|x|)`, without overflow.

        With `max(x, 0)` in the place of the first two terms the derivative at 0 would come out as
        0; this gives the right one, 1/2.
        """
        size = self.abs()
        return 0.5 * self + 0.5 * size + (1 + (-size).exp()).log()

    def tanh(self) -> Value:
        """The hyperbolic tangent."""
        return self._op("Tanh", self)

    def relu(self) -> Value:
        """`max(x, 0)`."""
        return self._op("Relu", self)

    def softmax(self, axis: int = -1) -> Value:
        """`e ** x / sum(e ** x)` along an axis."""
        from blockdsl.graph.shapes import normalised_along

        return normalised_along("Softmax", self, axis)

    def log_softmax(self, axis: int = -1) -> Value:
        """`log(softmax(x))` along an axis."""
        from blockdsl.graph.shapes import normalised_along

        return normalised_along("LogSoftmax", self, axis)

    def clip(self, low: Operand = None, high: Operand = None) -> Value:
        """`min(max(x, low), high)`."""
        return self._op("Clip", self, min=low, max=high)

    def mean(self, axis: Axes | None = None, keepdims: bool = False) -> Value:
        """The mean over some axes, over all by default."""
        return self._reduce("ReduceMean", axis, keepdims)

    def sum(self, axis: Axes | None = None, keepdims: bool = False) -> Value:
        """The sum over some axes, over all by default."""
        return self._reduce("ReduceSum", axis, keepdims)

    def max(self, axis: Axes | None = None, keepdims: bool = False) -> Value:
        """The maximum over some axes, over all by default."""
        return self._reduce("ReduceMax", axis, keepdims)

    def min(self, axis: Axes | None = None, keepdims: bool = False) -> Value:
        """The minimum over some axes, over all by default."""
        return self._reduce("ReduceMin", axis, keepdims)

    def _reduce(self, name: str, axis: Axes | None, keepdims: bool) -> Value:
        axes = None if axis is None else axes_in(axis, self.rank)
        if axes == []:
            return self
        return self._op(name, self, axes=axes, keepdims=int(keepdims))

    def reshape(self, *shape: Any) -> Value:
        """The same elements in another shape; -1 is worked out, 0 keeps the dimension."""
        target = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else list(shape)
        return self._op("Reshape", self, target)

    def transpose(self, *axes: int) -> Value:
        """The axes in another order, reversed by default."""
        order = axes_in(axes, self.rank) or list(reversed(range(self.rank)))
        if sorted(order) != list(range(self.rank)):
            raise OpError(f"{order} is no order of the {self.rank} axes of {str(self)!r}.")
        return self._op("Transpose", self, perm=order)

    def squeeze(self, *axes: int) -> Value:
        """Without these axes of length one."""
        return self._op("Squeeze", self, axes=axes_in(axes, self.rank)) if axes else self

    def unsqueeze(self, *axes: int) -> Value:
        """With axes of length one at these positions of the result."""
        rank = self.rank + len(axes)
        return self._op("Unsqueeze", self, axes=axes_in(axes, rank)) if axes else self

    def cast(self, dtype: Any) -> Value:
        """The elements in another type: a NumPy type or an `onnx.TensorProto.DataType`."""
        to = dtype if isinstance(dtype, int) else elem_type_of(dtype)
        return self if to == self.elem_type else self._op("Cast", self, to=to)


def _is_text(graph: Graph, other: object) -> bool:
    """Whether `name + other` joins strings: onnxblock code makes names that way."""
    return isinstance(other, str) and not isinstance(other, Value) and other not in graph


def known_to_be(x: Operand, number: float) -> bool:
    """Whether an operand is known to be a number: what a tensor is shows when the model runs."""
    return not isinstance(x, Value) and bool(x == number)
