"""The plain form of an optimizer model: an input and an output for every tensor it updates.

Its inputs are `learning_rate` (float32, one element), `step` (int64, one element; the first step is
1), and for every parameter `<p>`, `<p>_grad` and its slots `<p>.<slot>`. The output `<input>.out`
is the new value of an input. A session writes it over the old value, because no node reads an
input after the node that writes its new value.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto

from blockdsl.graph.model import Graph
from blockdsl.graph.op import op
from blockdsl.graph.value import Value


def scalar_inputs(graph: Graph) -> tuple[Value, Value]:
    """Add the inputs `learning_rate` and `step`, and return them as scalars."""
    rate = graph.add_input("learning_rate", TensorProto.FLOAT, [1])
    step = graph.add_input("step", TensorProto.INT64, [1])
    return op.Squeeze(rate, axes=[0]), op.Squeeze(step, axes=[0])


def tensor_inputs(
    graph: Graph, parameter: str, elem_type: int, shape: Sequence[int], slots: Sequence[str]
) -> list[Value]:
    """Add the inputs of one parameter: the parameter, its gradient and its slots."""
    return [
        graph.add_input(parameter, elem_type, shape),
        graph.add_input(f"{parameter}_grad", elem_type, shape),
        *(graph.add_input(f"{parameter}.{s}", compute_type(elem_type), shape) for s in slots),
    ]


def compute_type(elem_type: int) -> int:
    """Return the type an optimizer computes in: float32 at least, or small moments would vanish.

    Example:
        >>> compute_type(TensorProto.FLOAT16) == TensorProto.FLOAT
        True
    """
    return TensorProto.DOUBLE if elem_type == TensorProto.DOUBLE else TensorProto.FLOAT


def to_compute_type(x: Value) -> Value:
    """Cast a tensor to the type that an optimizer computes in."""
    return x.cast(compute_type(x.elem_type))
