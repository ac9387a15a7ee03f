"""`Value`: the name of a tensor that knows its type and has operators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from blockdsl.errors import GraphError, OpError, near
from blockdsl.graph.name import Name
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

Operand = Any
"""A `Value`, the name of a tensor, a number or an array."""


class Value(Name):
    """A tensor of the model under construction.

    It *is* the tensor's name, so that whatever takes names takes it (`onnx.helper.make_node`, say),
    and it has the operators of an array, each of which appends a node to the graph that is open.
    `==` compares two names, as of any strings, and nothing else: write `a.equal(b)` for the
    operator. NumPy's functions (`np.exp(x)`) append nodes, too.

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

    def __new__(cls, name: str, graph: Graph) -> Value:
        """A tensor of that name in a graph."""
        self = super().__new__(cls, name)
        self._graph = graph
        return self

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

    # -- operators -----------------------------------------------------------------------------

    def _op(self, name: str, *inputs: Operand, **attributes: Any) -> Value:
        ops = _later("op")
        result: Value = ops.emit(ops.open_graph(self), "", name, inputs, attributes)
        return result

    def _call(self, name: str, *operands: Operand) -> Value:
        """Call a function of `blockdsl.graph.arithmetic` in the graph that is open here."""
        _later("op").open_graph(self)
        result: Value = getattr(_later("arithmetic"), name)(*operands)
        return result

    def __len__(self) -> int:
        if self.shape and isinstance(self.shape[0], int):
            return self.shape[0]
        raise OpError(
            f"len({str(self)!r}) is the size of its first axis, which is not known while the model "
            f"is built ({self.type}): write op.Shape(x)[0], or x.mean() for x.sum() / len(x). The "
            f"length of the name is len(str(x))."
        )

    def __add__(self, other: Operand) -> Value:
        if isinstance(other, str) and _is_text(self._graph, other, 0):
            return str.__add__(self, other)  # type: ignore[return-value]
        return self._op("Add", self, other)

    def __radd__(self, other: Operand) -> Value:
        if isinstance(other, str) and _is_text(self._graph, other, -1):
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
        return self._call("divide", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self._call("divide", other, self)

    def __floordiv__(self, other: Operand) -> Value:
        return self._call("floor_divide", self, other)

    def __rfloordiv__(self, other: Operand) -> Value:
        return self._call("floor_divide", other, self)

    def __mod__(self, other: Operand) -> Value:
        return self._call("modulo", self, other)

    def __rmod__(self, other: Operand) -> Value:
        if isinstance(other, str) and other not in self._graph:
            return str.__mod__(other, (str(self),))  # type: ignore[return-value]
        return self._call("modulo", other, self)

    def __divmod__(self, other: Operand) -> tuple[Value, Value]:
        return self // other, self % other

    def __rdivmod__(self, other: Operand) -> tuple[Value, Value]:
        return other // self, other % self

    def __pow__(self, other: Operand) -> Value:
        return self._call("power", self, other)

    def __rpow__(self, other: Operand) -> Value:
        return self._call("power", other, self)

    def __matmul__(self, other: Operand) -> Value:
        return self._op("MatMul", self, other)

    def __rmatmul__(self, other: Operand) -> Value:
        return self._op("MatMul", other, self)

    def __neg__(self) -> Value:
        return self._op("Neg", self)

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Value:
        return self._op("Abs", self)

    def __round__(self, digits: int | None = None) -> Value:
        return self._call("rounded", self, digits)

    def __floor__(self) -> Value:
        return self._op("Floor", self)

    def __ceil__(self) -> Value:
        return self._op("Ceil", self)

    def __lt__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._call("less", self, other)

    def __gt__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._call("greater", self, other)

    def __le__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._op("Not", self > other)

    def __ge__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._op("Not", self < other)

    def __and__(self, other: Operand) -> Value:
        return self._call("logical", "And", self, other)

    def __or__(self, other: Operand) -> Value:
        return self._call("logical", "Or", self, other)

    def __xor__(self, other: Operand) -> Value:
        return self._call("logical", "Xor", self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Value:
        return self._call("logical", "Not", self)

    def __getitem__(self, key: Any) -> Value:
        _later("op").open_graph(self)
        part: Value = _later("slicing").take(self, key)
        return part

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Any:
        return _later("arrays").call_ufunc(ufunc, method, inputs, settings)

    def __array_function__(self, function: Any, _: Any, args: Any, settings: Any) -> Any:
        return _later("arrays").call_function(function, args, settings)

    # -- methods -------------------------------------------------------------------------------

    def equal(self, other: Operand) -> Value:
        """`self == other`, element by element."""
        return self._call("equal", self, other)

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
        return self._normalised("Softmax", axis)

    def log_softmax(self, axis: int = -1) -> Value:
        """`log(softmax(x))` along an axis."""
        return self._normalised("LogSoftmax", axis)

    def _normalised(self, name: str, axis: int) -> Value:
        _later("op").open_graph(self)
        result: Value = _later("shapes").normalised_along(name, self, axis)
        return result

    def clip(self, low: Operand = None, high: Operand = None) -> Value:
        """`min(max(x, low), high)`."""
        return self._op("Clip", self, min=low, max=high)

    def mean(self, axis: Axes | None = None, keepdims: bool = False) -> Value:
        """The mean of floats over some axes, over all by default."""
        if not self.type.is_float:
            raise OpError(
                f"{str(self)!r} is {self.type}, and ONNX drops the fraction of a mean of integers: "
                f"write x.cast(np.float32).mean()."
            )
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


def _later(module: str) -> Any:
    """A module of this package that works with values, and is imported after this one."""
    return import_module(f"blockdsl.graph.{module}")


def _is_text(graph: Graph, other: str, joint: int) -> bool:
    """Whether `name + other` joins strings, as code that handles names does: `name + "_grad"`.

    Args:
        graph: The graph.
        other: The other operand.
        joint: The index of the character of it that comes next to the name.

    Raises:
        OpError: It could as well be meant for the name of a tensor that does not exist.
    """
    if isinstance(other, Value) or other in graph:
        return False
    if other and other[joint].isalpha():
        raise OpError(
            f"The model has no tensor {other!r} to add. {near(other, graph.known_names())} To join "
            f"text to the name write an f-string."
        )
    return True


def known_to_be(x: Operand, number: float) -> bool:
    """Whether an operand is known to be a number: what a tensor is shows when the model runs."""
    return not isinstance(x, Value) and bool(x == number)
