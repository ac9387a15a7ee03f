"""May a model's output be written over one of its inputs?

A session reads its inputs at any time before it ends, and writes an output when the node that
makes it runs. Binding both to one piece of memory saves a copy of every parameter per step, and is
right only when nothing reads the input after that node has begun to write.
"""

from __future__ import annotations

from collections.abc import Iterable

from onnx import GraphProto, NodeProto

from blockdsl.graph.tensor import TensorType, is_static
from blockdsl.graph.walk import reads

# Kernels that read each element before they write the element at the same place. The runtime's
# optimizer fuses none of them into a kernel that does otherwise, unless an operator outside these
# three sets lies between the input and the output (MatMul + Add becomes Gemm; Erf, Tanh and
# Sigmoid make Gelu; ReduceMean makes LayerNormalization).
ELEMENTWISE = {
    *("Abs", "Add", "Clip", "Div", "Identity", "Max", "Min", "Mul", "Neg", "Pow", "Reciprocal"),
    *("Sign", "Sqrt", "Sub", "Where"),
}
# Their result is memory of its own.
COPYING = {
    *("And", "Cast", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual"),
    *("Not", "Or", "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMin", "ReduceSum", "Sum"),
    *("ReduceSumSquare", "Shape", "Size"),
}
# Their result may be a view of their input.
VIEWS = {"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}


class InPlaceCheck:
    """Answers for one graph.

    Indexing takes linear time, an answer time proportional to the nodes between input and output.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: GraphProto) -> None:
        self._nodes = list(graph.node)
        self._sorted = True  # what ONNX demands; the answers rest on it
        self._producer: dict[str, int] = {}
        self._consumers: dict[str, list[int]] = {}
        for index, node in enumerate(self._nodes):
            for name in reads(node):
                self._consumers.setdefault(name, []).append(index)
            for name in filter(None, node.output):
                self._producer[name] = index
                self._sorted &= name not in self._consumers
        self._types = {v.name: TensorType.of(v.type) for v in [*graph.input, *graph.output]}
        self._outputs = {v.name for v in graph.output}

    def allows(self, source: str, target: str) -> bool:
        """Whether the output `target` may be written over the input `source`.

        Both must have one static type. Every node that reads the input, itself or through a view,
        must be the node that makes the output or come before it on every path of execution: be an
        ancestor of it. The node that makes the output may read the input only element by element.

        Args:
            source: A graph input.
            target: A graph output.
        """
        kind = self._types.get(source)
        last = self._producer.get(target)
        if last is None or not self._sorted:
            return False
        if kind is None or not is_static(kind.shape) or kind != self._types.get(target):
            return False
        readers = self._consumers.get(source, [])
        if not readers:
            return True
        before = self._ancestors(last, readers[0])

        views, touched = {source}, {source}
        for index in sorted({*before, last}):
            node = self._nodes[index]
            read = touched.intersection(reads(node))
            if not read:
                continue
            if not _is_plain(node):
                return False
            if index == last:
                return _writes_in_step(node, source, views) and self._all_within(
                    views, {*before, last}
                )
            touched.update(node.output)
            if node.op_type in VIEWS and node.input[0] in views:
                views.update(node.output)
        return self._all_within(views, before)

    def _ancestors(self, last: int, first: int) -> set[int]:
        """The nodes on which a node depends; those before `first` do not read the input."""
        found: set[int] = set()
        pending = [last]
        while pending:
            for name in reads(self._nodes[pending.pop()]):
                index = self._producer.get(name, -1)
                if index >= first and index not in found:
                    found.add(index)
                    pending.append(index)
        return found

    def _all_within(self, views: Iterable[str], allowed: set[int]) -> bool:
        """Whether only some nodes read the input and its views, and none is itself an output."""
        return all(
            name not in self._outputs and allowed.issuperset(self._consumers.get(name, ()))
            for name in views
        )


def _is_plain(node: NodeProto) -> bool:
    ops = ELEMENTWISE | COPYING | VIEWS
    if node.domain not in ("", "ai.onnx") or node.op_type not in ops:
        return False
    # Of three or more operands, Max and Min write intermediate results.
    return node.op_type not in ("Max", "Min") or len(node.input) <= 2


def _writes_in_step(node: NodeProto, source: str, views: set[str]) -> bool:
    """Whether the last node, which reads the input or what was made of it, writes as it reads."""
    direct = views.intersection(node.input)
    if not direct:
        return node.op_type in ELEMENTWISE | COPYING | VIEWS
    # A view of another shape would be read in another order than the output is written.
    return direct == {source} and node.op_type in ELEMENTWISE
